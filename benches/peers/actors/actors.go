// The paper's two message benchmarks in Go: goroutines and buffered channels.
//
//	actors ring|all-to-all THREADS MESSAGES
//
// Prints "messages N seconds S"; the time is that of the messages, without start-up.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

const (
	ringProcesses = 1000
	ringInFlight  = 100
	meshProcesses = 100
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: actors ring|all-to-all THREADS MESSAGES")
		os.Exit(2)
	}
	threads, err1 := strconv.Atoi(os.Args[2])
	messages, err2 := strconv.ParseInt(os.Args[3], 10, 64)
	if err1 != nil || err2 != nil || threads < 1 || messages < 1 {
		fmt.Fprintln(os.Stderr, "THREADS and MESSAGES are whole numbers above zero")
		os.Exit(2)
	}
	runtime.GOMAXPROCS(threads)
	var done int64
	var took time.Duration
	switch os.Args[1] {
	case "ring":
		done, took = ring(messages)
	case "all-to-all":
		done, took = allToAll(messages)
	default:
		fmt.Fprintln(os.Stderr, "unknown benchmark", os.Args[1])
		os.Exit(2)
	}
	fmt.Printf("messages %d seconds %.6f\n", done, took.Seconds())
}

// A message is the number of hops it has left. Channels hold every message in flight, so
// that no goroutine ever blocks on a send.
func ring(messages int64) (int64, time.Duration) {
	channels := make([]chan int64, ringProcesses)
	for i := range channels {
		channels[i] = make(chan int64, ringInFlight)
	}
	var finished sync.WaitGroup
	finished.Add(ringInFlight)
	for i := range channels {
		in, out := channels[i], channels[(i+1)%ringProcesses]
		go func() {
			for left := range in {
				if left == 0 {
					finished.Done()
				} else {
					out <- left - 1
				}
			}
		}()
	}
	hops := messages / ringInFlight
	start := time.Now()
	for i := 0; i < ringInFlight; i++ {
		channels[i*ringProcesses/ringInFlight] <- hops - 1
	}
	finished.Wait()
	return hops * ringInFlight, time.Since(start)
}

func allToAll(messages int64) (int64, time.Duration) {
	channels := make([]chan int64, meshProcesses)
	for i := range channels {
		channels[i] = make(chan int64, meshProcesses)
	}
	var finished sync.WaitGroup
	finished.Add(meshProcesses)
	for i := range channels {
		in := channels[i]
		state := uint64(i)*0x9E3779B97F4A7C15 + 1
		go func() {
			for left := range in {
				if left == 0 {
					finished.Done()
					continue
				}
				// xorshift64: the cheapest generator that is random enough to pick a peer.
				state ^= state << 13
				state ^= state >> 7
				state ^= state << 17
				channels[(state>>32)*meshProcesses>>32] <- left - 1
			}
		}()
	}
	hops := messages / meshProcesses
	start := time.Now()
	for i := range channels {
		channels[i] <- hops - 1
	}
	finished.Wait()
	return hops * meshProcesses, time.Since(start)
}
