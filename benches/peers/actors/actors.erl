%% The paper's two message benchmarks in Erlang.
%%
%%     erl +S THREADS:THREADS -noshell -run actors main ring|all-to-all MESSAGES
%%
%% Prints "messages N seconds S"; the time is that of the messages, without start-up.
-module(actors).
-export([main/1]).

-define(RING_PROCESSES, 1000).
-define(RING_IN_FLIGHT, 100).
-define(MESH_PROCESSES, 100).

main([Name, Count]) ->
    Messages = list_to_integer(Count),
    {Done, Micros} = case Name of
        "ring" -> ring(Messages);
        "all-to-all" -> all_to_all(Messages)
    end,
    io:format("messages ~b seconds ~.6f~n", [Done, Micros / 1.0e6]),
    halt(0).

%% A message is the number of hops it has left.
ring(Messages) ->
    Main = self(),
    First = spawn(fun() -> receive {next, Next} -> ring_loop(Main, Next) end end),
    Pids = ring_spawn(Main, First, ?RING_PROCESSES - 1, [First]),
    First ! {next, hd(Pids)},
    Every = ?RING_PROCESSES div ?RING_IN_FLIGHT,
    Starts = [lists:nth(I * Every + 1, Pids) || I <- lists:seq(0, ?RING_IN_FLIGHT - 1)],
    Hops = Messages div ?RING_IN_FLIGHT,
    Begin = erlang:monotonic_time(microsecond),
    [Pid ! (Hops - 1) || Pid <- Starts],
    wait(?RING_IN_FLIGHT),
    {Hops * ?RING_IN_FLIGHT, erlang:monotonic_time(microsecond) - Begin}.

ring_spawn(_, _, 0, Pids) -> Pids;
ring_spawn(Main, Next, Left, Pids) ->
    Pid = spawn(fun() -> ring_loop(Main, Next) end),
    ring_spawn(Main, Pid, Left - 1, [Pid | Pids]).

ring_loop(Main, Next) ->
    receive
        0 -> Main ! done;
        Left -> Next ! (Left - 1)
    end,
    ring_loop(Main, Next).

all_to_all(Messages) ->
    Main = self(),
    Pids = [spawn(fun() -> receive {peers, Peers} -> mesh_loop(Main, Peers, I * 2654435761 + 1) end end)
            || I <- lists:seq(1, ?MESH_PROCESSES)],
    Peers = list_to_tuple(Pids),
    [Pid ! {peers, Peers} || Pid <- Pids],
    Hops = Messages div ?MESH_PROCESSES,
    Begin = erlang:monotonic_time(microsecond),
    [Pid ! (Hops - 1) || Pid <- Pids],
    wait(?MESH_PROCESSES),
    {Hops * ?MESH_PROCESSES, erlang:monotonic_time(microsecond) - Begin}.

%% A linear congruential generator whose state stays a small integer (no bignum, no garbage).
mesh_loop(Main, Peers, State) ->
    receive
        0 ->
            Main ! done,
            mesh_loop(Main, Peers, State);
        Left ->
            Next = (State * 1103515245 + 12345) band 16#7fffffff,
            element((Next bsr 8) rem ?MESH_PROCESSES + 1, Peers) ! (Left - 1),
            mesh_loop(Main, Peers, Next)
    end.

wait(0) -> ok;
wait(Left) -> receive done -> wait(Left - 1) end.
