// The latencies of a finished run: their names, and their keys in a summary.
import type { Latencies } from './frames';

export const LATENCIES: readonly (readonly [name: string, key: keyof Latencies])[] = [
  ['mean', 'mean_us'],
  ['median', 'p50_us'],
  ['p90', 'p90_us'],
  ['p99', 'p99_us'],
  ['p99.9', 'p99_9_us'],
  ['longest', 'max_us'],
];
