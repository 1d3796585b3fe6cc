// The messages from the program, one JSON object per server-sent event: the types of crates/brunt-web/src/live/frame.rs,
// which documents each field. A test of that crate checks that both have the same names.

export type Frame =
  | ({ frame: 'plan' } & Plan)
  | ({ frame: 'past' } & Thinning)
  | { frame: 'now' }
  | ({ frame: 'run-begins' } & Run)
  | { frame: 'run-starts'; at_s: number; trial: number }
  | ({ frame: 'stretch' } & Stretch)
  | ({ frame: 'sample' } & Sample)
  | ({ frame: 'fault' } & Fault)
  | ({ frame: 'run-ends' } & RunEnd)
  | { frame: 'note'; at_s: number; text: string }
  | { frame: 'lost'; frames: number }
  | { frame: 'missed'; events: number }
  | ({ frame: 'ends' } & End);

export interface Plan {
  experiment: string;
  description: string;
  brunt: string;
  folder: string;
  began_unix_ms: number;
  runs: number;
  order: number[];
  points: { label: string; stated_s: number | null }[];
  faults: [name: string, kind: string, place: string][];
  heat_bounds_us: number[];
}

export interface Thinning {
  stretches_each: number;
  samples_each: number;
  runs_left_out: number;
  notes_left_out: number;
  samples_left_out: number;
}

export interface Run {
  order: number;
  runs: number;
  point: number;
  label: string;
  repetition: number;
  at_s: number;
}

export interface Latencies {
  min_us: number;
  mean_us: number;
  p50_us: number;
  p90_us: number;
  p99_us: number;
  p99_9_us: number;
  p99_99_us: number;
  max_us: number;
}

export interface Kind {
  op: string;
  completed: number;
  requests_per_second: number;
  mean_us: number | null;
}

export interface Stretch {
  start_s: number;
  end_s: number;
  of: number;
  completed: number;
  requests_per_second: number;
  bytes_per_second: number;
  depth: number;
  response: Latencies | null;
  kinds: Kind[];
  losses: Record<string, number>;
  retries: number;
  late: number;
  heat: [row: number, count: number][];
}

export interface Sample {
  host: string;
  start_s: number;
  end_s: number;
  of: number;
  values: [probe: string, instance: string, metric: string, value: number][];
  left_out: number;
}

export interface Fault {
  index: number;
  name: string;
  kind: string;
  place: string;
  what: string;
  start_s: number;
  shown_by: string;
  end_s: number | null;
  gone_by: string;
}

export interface RunEnd {
  order: number;
  runs: number;
  label: string;
  repetition: number;
  is_job: boolean;
  stopped: string;
  complete: boolean;
  measured_s: number;
  requests_per_second: number;
  bytes_per_second: number;
  response: Latencies | null;
  losses: Record<string, number>;
  first_error: string | null;
  doubts: string[];
}

export interface End {
  trouble: string | null;
  folder: string;
  report: string | null;
  viewers: number;
  frames_lost: number;
  events_missed: number;
}
