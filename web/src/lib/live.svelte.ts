// What the program has sent so far, and the connection to it. Series are plain arrays, since there are many: `changes`
// counts how often they changed, and is what charts look at.
import type { End, Fault, Frame, Plan, Run, RunEnd, Sample, Stretch, Thinning } from './frames';

/** One run, as far as this page saw it. */
export interface RunView {
  run: Run;
  started_s: number | null;
  trial: number;
  stretches: Stretch[];
  samples: Map<string, Sample[]>;
  faults: Map<number, Fault>;
}

/** `idle`: connected, and nothing has run yet. */
export type Connection = 'connecting' | 'idle' | 'live' | 'lost' | 'over';

/** Runs whose series are kept, the newest. */
const VIEWS_MAX = 20;
/** A longer series is asked for again: the program thins it. */
const STRETCHES_MAX = 3000;
/** Whoever was refused, because there are too many, asks again after so long. */
const RETRY_MS = 5000;
/** Lines of the log that are kept. */
const NOTES_MAX = 1000;

export class Live {
  connection = $state<Connection>('connecting');
  plan = $state.raw<Plan | null>(null);
  past = $state.raw<Thinning | null>(null);
  current = $state<number | null>(null);
  ended = $state.raw<ReadonlyMap<number, RunEnd>>(new Map());
  notes = $state.raw<{ at_s: number; text: string }[]>([]);
  lost = $state(0);
  missed = $state(0);
  end = $state.raw<End | null>(null);
  /** Figures of hosts that were seen at any time, by name. */
  probes = $state.raw<string[]>([]);
  /** What a screen reader is told. */
  said = $state('');
  changes = $state(0);
  /** The id of the result that is being made, once it is known. */
  result = $state<string | null>(null);
  /** How many plans have come. */
  plans = 0;
  private expected: string | null = null;
  /** Whether the server goes on after an experiment. */
  stays = false;
  /** Called when the connection is made, and when another experiment begins. */
  onplan: () => void = () => {};

  views = new Map<number, RunView>();
  private source: EventSource | null = null;
  private frame = 0;
  private isPast = true;

  /** Connects; the function ends the connection. */
  connect(): () => void {
    const source = new EventSource('/events');
    this.source = source;
    source.onopen = () => {
      if (this.connection !== 'over') this.connection = this.plan ? 'live' : 'idle';
      this.onplan();
    };
    source.onmessage = (event) => this.take(JSON.parse(event.data as string) as Frame);
    source.onerror = () => {
      if (this.connection === 'over' && !this.stays) return;
      this.connection = 'lost';
      // It tries again by itself, unless it was refused.
      if (source.readyState === EventSource.CLOSED) setTimeout(() => this.connect(), RETRY_MS);
    };
    return () => this.source?.close();
  }

  /** The view of the run under way, or of the last one. */
  get now(): RunView | undefined {
    return this.current == null ? undefined : this.views.get(this.current);
  }

  private reconnect() {
    this.source?.close();
    this.connect();
  }

  private changed() {
    // One redraw for all that came since the last one.
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.changes += 1;
    });
  }

  private say(text: string) {
    if (!this.isPast) this.said = text;
  }

  private take(frame: Frame) {
    switch (frame.frame) {
      case 'plan':
        this.planned(frame);
        break;
      case 'past':
        this.past = frame;
        break;
      case 'now':
        this.isPast = false;
        break;
      case 'run-begins':
        this.begin(frame);
        break;
      case 'run-starts':
        this.start(frame.at_s, frame.trial);
        break;
      case 'stretch':
        this.now?.stretches.push(frame);
        if ((this.now?.stretches.length ?? 0) > STRETCHES_MAX && !this.isPast) this.reconnect();
        break;
      case 'sample':
        this.sample(frame);
        break;
      case 'fault':
        this.now?.faults.set(frame.index, frame);
        this.say(`fault ${frame.name} at ${frame.place} ${frame.end_s == null ? 'is in effect' : 'is gone'}`);
        break;
      case 'run-ends':
        this.ended = new Map(this.ended).set(frame.order, frame);
        this.say(`run ${frame.order + 1} of ${frame.runs} is over`);
        break;
      case 'note':
        this.notes = [...this.notes.slice(1 - NOTES_MAX), { at_s: frame.at_s, text: frame.text }];
        break;
      case 'lost':
        this.lost += frame.frames;
        break;
      case 'missed':
        this.missed = frame.events;
        break;
      case 'ends':
        this.end = frame;
        this.connection = 'over';
        this.said = 'the experiment is over';
        // A server that goes on has more to send: the next experiment.
        if (!this.stays) this.source?.close();
        break;
    }
    this.changed();
  }

  /** The first frame of an experiment, or again of the same one after the connection was lost. */
  private planned(plan: Plan) {
    const isOther = this.plan?.began_unix_ms !== plan.began_unix_ms || this.plan.folder !== plan.folder;
    this.plan = plan;
    this.connection = 'live';
    this.isPast = true;
    this.notes = [];
    this.past = null;
    this.end = null;
    this.lost = 0;
    this.missed = 0;
    this.plans += 1;
    if (!isOther) return;
    this.forget();
    this.result = this.expected;
    this.expected = null;
    this.onplan();
  }

  /** An experiment was started, when so many plans had come: until its own comes, nothing of another is shown. */
  expect(id: string, plans: number) {
    if (this.plans === plans) {
      this.forget();
      this.plan = null;
      this.end = null;
      this.notes = [];
      this.expected = id;
      this.connection = 'live';
    }
    this.result = id;
    this.changed();
  }

  private forget() {
    this.views.clear();
    this.ended = new Map();
    this.current = null;
    this.probes = [];
  }

  private begin(run: Run) {
    this.views.set(run.order, {
      run,
      started_s: null,
      trial: 0,
      stretches: [],
      samples: new Map(),
      faults: new Map(),
    });
    for (const order of this.views.keys()) {
      if (this.views.size > VIEWS_MAX) this.views.delete(order);
    }
    this.current = run.order;
    this.say(`run ${run.order + 1} of ${run.runs} begins: ${run.label}`);
  }

  private start(at_s: number, trial: number) {
    const view = this.now;
    if (!view) return;
    view.started_s = at_s;
    view.trial = trial;
    view.stretches = [];
  }

  private sample(sample: Sample) {
    const known = new Set(this.probes);
    const names = sample.values.map(probeName).filter((name) => !known.has(name));
    if (names.length > 0) this.probes = [...this.probes, ...new Set(names)].sort();
    const samples = this.now?.samples;
    if (!samples) return;
    const series = samples.get(sample.host);
    if (series) series.push(sample);
    else samples.set(sample.host, [sample]);
  }
}

/** What a figure of a host is called: `cpu cpu0 busy_share`. */
export function probeName([probe, instance, metric]: Sample['values'][number]): string {
  return instance ? `${probe} ${instance} ${metric}` : `${probe} ${metric}`;
}

/** The time that charts of a run call zero: the begin of measuring, as in the report. */
export function zeroOf(view: RunView): number {
  return view.stretches[0]?.start_s ?? view.started_s ?? view.run.at_s;
}
