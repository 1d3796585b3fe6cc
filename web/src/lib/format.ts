// Formats numbers for people, with three significant digits, like the terminal's table.

const grouped = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

/** A number with three significant digits, or all of its integer digits. */
export function short(value: number): string {
  if (!Number.isFinite(value)) return '-';
  if (Math.abs(value) >= 100 || value === 0) return grouped.format(value);
  return String(Number(value.toPrecision(3)));
}

/** A latency. */
export function micros(us: number | null | undefined): string {
  if (us == null) return '-';
  if (us < 1000) return `${short(us)} µs`;
  if (us < 1e6) return `${short(us / 1e3)} ms`;
  return `${short(us / 1e6)} s`;
}

/** A throughput. */
export function bytesPerSecond(bytes: number): string {
  if (bytes < 1e6) return `${short(bytes / 1e3)} kB/s`;
  return bytes < 1e9 ? `${short(bytes / 1e6)} MB/s` : `${short(bytes / 1e9)} GB/s`;
}

/** A time span in seconds. */
export function span(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Counts by name: `3 timed-out, 1 os`. */
export function counts(losses: Record<string, number>): string {
  return Object.entries(losses)
    .filter(([, count]) => count > 0)
    .map(([name, count]) => `${grouped.format(count)} ${name}`)
    .join(', ');
}
