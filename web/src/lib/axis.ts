// Shared by all charts: their time axis, the shaded spans of faults, and the colours of the page's style.
import uPlot from 'uplot';
import { zeroOf, type RunView } from './live.svelte';

export interface Span {
  from: number;
  to: number;
  name: string;
}

/** The cursors of all charts move together. */
export const cursors = uPlot.sync('time');

/** A run's faults on its time axis; an active fault extends to the end. */
export function spans(view: RunView): Span[] {
  const zero = zeroOf(view);
  const end = view.stretches.at(-1)?.end_s ?? zero;
  return [...view.faults.values()].map((fault) => ({
    from: fault.start_s - zero,
    to: Math.max(fault.end_s ?? end, fault.start_s) - zero,
    name: `${fault.name} (${fault.place})`,
  }));
}

/** The width of the containing box. */
function size(box: HTMLElement, height: number): { width: number; height: number } {
  return { width: Math.max(box.clientWidth, 120), height };
}

/** Options shared by all charts. */
export function frame(box: HTMLElement, height: number): Pick<uPlot.Options, 'width' | 'height' | 'legend'> {
  return { ...size(box, height), legend: { show: false } };
}

/** Keeps a chart as wide as its box; the returned function stops that and destroys the chart. */
export function follow(box: HTMLElement, height: number, chart: () => uPlot | undefined): () => void {
  const observer = new ResizeObserver(() => chart()?.setSize(size(box, height)));
  observer.observe(box);
  return () => {
    observer.disconnect();
    chart()?.destroy();
  };
}

/** The time scale of a run. */
export function timeScale(view: () => RunView | undefined): uPlot.Scale {
  const get = (): [number, number] => {
    const run = view();
    return run ? range(run) : [0, 1];
  };
  return { time: false, range: get };
}

function range(view: RunView): [number, number] {
  const zero = zeroOf(view);
  const last = Math.max(1, (view.stretches.at(-1)?.end_s ?? zero) - zero);
  return [0, last];
}

export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Shades the spans of faults behind a chart. */
export function faultPlugin(get: () => Span[]): uPlot.Plugin {
  return {
    hooks: {
      drawClear: (chart: uPlot) => {
        const { ctx } = chart;
        const { left, top, width, height } = chart.bbox;
        ctx.save();
        ctx.beginPath();
        ctx.rect(left, top, width, height);
        ctx.clip();
        for (const span of get()) {
          const from = Math.round(chart.valToPos(span.from, 'x', true));
          const to = Math.max(chart.valToPos(span.to, 'x', true), from + 1);
          ctx.fillStyle = colour('--fault');
          ctx.fillRect(from, top, to - from, height);
          ctx.fillStyle = colour('--fault-ink');
          ctx.fillRect(from, top, devicePixelRatio, height);
        }
        ctx.restore();
      },
    },
  };
}

/** Axes in the page's colours. */
export function axes(format: (value: number) => string): uPlot.Axis[] {
  const look = { stroke: () => colour('--soft'), grid: { stroke: () => colour('--grid'), width: 1 }, ticks: { show: false } };
  return [
    { ...look, size: 28, values: (_, ticks) => ticks.map((tick) => `${tick} s`) },
    { ...look, size: 76, values: (_, ticks) => ticks.map((tick) => (tick == null ? '' : format(tick))) },
  ];
}
