// The connection to the program, and what it has sent so far. Series are plain arrays because they are long: `changes`
// counts their changes, and charts depend on that.
import type { End, Fault, Frame, Plan, Run, RunEnd, Sample, Stretch, Thinning } from './frames';

/** A run, as far as this page has seen it. */
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

/** Number of runs whose series are kept; the newest. */
const VIEWS_MAX = 20;
/** Longer series are requested again: the program thins them. */
const STRETCHES_MAX = 3000;
/** Time before retrying after being refused because there are too many viewers. */
const RETRY_MS = 5000;
/** Number of log lines kept. */
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
  /** Host figures seen so far, by name. */
  probes = $state.raw<string[]>([]);
  /** Text for screen readers. */
  said = $state('');
  changes = $state(0);
  /** The id of the result being produced, once known. */
  result = $state<string | null>(null);
  /** Number of plans received. */
  plans = 0;
  private expected: string | null = null;
  /** Whether the server continues after an experiment. */
  stays = false;
  /** Called on connecting, and when another experiment begins. */
  onplan: () => void = () => {};

  views = new Map<number, RunView>();
  private source: EventSource | null = null;
  private frame = 0;
  private isPast = true;

  /** Connects; the returned function disconnects. */
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
      // The browser reconnects by itself, unless the connection was refused.
      if (source.readyState === EventSource.CLOSED) setTimeout(() => this.connect(), RETRY_MS);
    };
    return () => this.source?.close();
  }

  /** The view of the current run, or of the last one. */
  get now(): RunView | undefined {
    return this.current == null ? undefined : this.views.get(this.current);
  }

  private reconnect() {
    this.source?.close();
    this.connect();
  }

  private changed() {
    // One redraw for everything since the last one.
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
        // A server that continues has more to send: the next experiment.
        if (!this.stays) this.source?.close();
        break;
    }
    this.changed();
  }

  /** The first frame of an experiment, or of the same one after reconnecting. */
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

  /** An experiment was started after `plans` plans had arrived: show nothing until its own plan arrives. */
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

/** The name of a host figure: `cpu cpu0 busy_share`. */
export function probeName([probe, instance, metric]: Sample['values'][number]): string {
  return instance ? `${probe} ${instance} ${metric}` : `${probe} ${metric}`;
}

/** Time zero of a run's charts: the start of measuring, as in the report. */
export function zeroOf(view: RunView): number {
  return view.stretches[0]?.start_s ?? view.started_s ?? view.run.at_s;
}
