// Requests to `brunt serve` (docs/live-page.md has the table), and how it refuses them.

export interface About {
  version: string;
  mode: 'serve' | 'run';
  /** The current run, or the run that a page of a single run can stop. */
  running: string | null;
  can_start?: boolean;
}

/** A mistake in an experiment's text. Lines and columns count from 1, columns in UTF-16 units. Some have no position. */
export interface Problem {
  line: number | null;
  column: number | null;
  end_line?: number | null;
  end_column?: number | null;
  message: string;
  advice?: string | null;
}

export interface PlanHost {
  name: string;
  kind: string;
  roles: string[];
}
export interface PlanLink {
  name: string;
  a: string;
  b: string;
  impairments: string;
}
export interface PlanTarget {
  name: string;
  url: string;
  host?: string | null;
}
export interface PlanWorkload {
  name: string;
  hosts: string[];
  target: string;
  kind: string;
}
export interface PlanFault {
  name: string;
  kind: string;
  what: string;
  on?: string | null;
  /** Seconds of measured time; 0 if it is active from the start. */
  from_s: number;
  /** `null`: until the end of the run. */
  to_s: number | null;
  /** Whether it applies to the runs against all targets. */
  every_run: boolean;
}

/** What an experiment would do. */
export interface CheckedPlan {
  name: string;
  runs: number;
  points: number;
  seconds: { least: number };
  writes: string[];
  hosts: PlanHost[];
  links: PlanLink[];
  targets: PlanTarget[];
  workloads: PlanWorkload[];
  faults: PlanFault[];
  run_seconds: number | null;
}

export interface Checked {
  errors: Problem[];
  /** Remarks that aren't mistakes. */
  notes?: string[];
  plan: CheckedPlan | null;
}

export interface Example {
  name: string;
  title: string;
  text: string;
}

export interface ResultRow {
  id: string;
  name: string;
  began_unix_ms: number;
  seconds: number | null;
  runs: number;
  complete: boolean;
  words: Headline;
}

interface Range {
  least: number;
  most: number;
}

/** The main figures of a result, over its points. */
export interface Headline {
  points: number;
  requests_per_second: Range | null;
  p99_us: Range | null;
  failed_requests: number;
  trouble: string | null;
}

/** A refusal, in the program's words. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly advice: string | null,
    readonly errors: Problem[],
  ) {
    super(message);
  }
}

/** Storage key of the token, which is taken from the address after `#`, kept in this tab, and removed from the address. */
const KEPT = 'brunt-token';

export function takeToken(): void {
  const found = /^#token=([\w-]+)$/.exec(location.hash);
  if (!found?.[1]) return;
  keepToken(found[1]);
  history.replaceState(null, '', location.pathname);
}

export function keepToken(token: string): void {
  sessionStorage.setItem(KEPT, token);
}

async function ask(method: string, path: string, body?: unknown): Promise<Response> {
  const headers: Record<string, string> = {};
  const token = sessionStorage.getItem(KEPT);
  if (token) headers['Authorization'] = `Bearer ${token}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let answer: Response;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? null : JSON.stringify(body) });
  } catch {
    throw new Refused(0, 'Brunt does not answer: it has exited, or the connection is lost', null, []);
  }
  if (answer.ok) return answer;
  const text = await answer.text();
  let said: { error?: string; advice?: string; errors?: Problem[] } = {};
  try {
    said = JSON.parse(text) as typeof said;
  } catch {
    // A plain-text refusal.
  }
  const words = said.error ?? (text.trim() || `status ${answer.status}`);
  throw new Refused(answer.status, words, said.advice ?? null, said.errors ?? []);
}

const json = async <T>(method: string, path: string, body?: unknown): Promise<T> => (await (await ask(method, path, body)).json()) as T;
const part = encodeURIComponent;

export const api = {
  about: () => json<About>('GET', '/api/about'),
  schema: () => json<unknown>('GET', '/api/schema'),
  examples: () => json<Example[]>('GET', '/api/examples'),
  check: (text: string) => json<Checked>('POST', '/api/check', { text }),
  start: (text: string) => json<{ id: string }>('POST', '/api/runs', { text }),
  stop: async (id: string) => void (await ask('POST', `/api/runs/${part(id)}/stop`)),
  results: (words: string) => json<ResultRow[]>('GET', `/api/results?search=${part(words)}`),
  experiment: async (id: string) => (await ask('GET', `/api/results/${part(id)}/experiment`)).text(),
  view: (id: string) => json<{ page: string }>('POST', '/api/view', { report: id }),
  compare: (results: string[]) => json<{ page: string }>('POST', '/api/compare', { results }),
  history: (search: string) => json<{ page: string }>('POST', '/api/history', { search }),
};
