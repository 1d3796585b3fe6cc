// Lays out an experiment's sketch: hosts in columns by their distance from the hosts that generate load.
import type { CheckedPlan } from '../lib/api';

export interface Box {
  name: string;
  kind: string;
  /** A line for each thing that runs on it. */
  lines: { text: string; is: 'workload' | 'target' | 'role' }[];
  /** Not one of the experiment's hosts: something opened by its address. */
  isOutside: boolean;
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Wire {
  name: string;
  label: string;
  isLink: boolean;
  from: { x: number; y: number };
  to: { x: number; y: number };
}

export interface Layout {
  boxes: Box[];
  wires: Wire[];
  width: number;
  height: number;
}

const WIDTH = 190;
const LINE = 17;
const GAP = { x: 130, y: 26 };
const LOCAL = 'local';

export function cut(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** Lays out hosts, and targets that are opened by address. */
export function layout(plan: CheckedPlan): Layout {
  const boxes = new Map<string, Box>();
  const box = (key: string, name: string, kind: string, isOutside = false) => {
    const made = boxes.get(key) ?? { name, kind, lines: [], isOutside, x: 0, y: 0, width: WIDTH, height: 0 };
    boxes.set(key, made);
    return made;
  };
  for (const host of plan.hosts) box(host.name, host.name, host.kind);
  const homes = new Map<string, string>();
  for (const target of plan.targets) {
    if (target.host != null) {
      box(target.host, target.host, '').lines.push({ text: `serves ${target.name}: ${target.url}`, is: 'target' });
      homes.set(target.name, target.host);
    } else {
      const key = `target ${target.name}`;
      box(key, target.name, 'target', true).lines.push({ text: target.url, is: 'target' });
      homes.set(target.name, key);
    }
  }
  const uses = new Set<string>();
  for (const workload of plan.workloads) {
    for (const host of workload.hosts.length > 0 ? workload.hosts : [LOCAL]) {
      const text = `${workload.name} (${workload.kind})`;
      const { lines } = box(host, host, '');
      if (!lines.some((line) => line.text === text)) lines.push({ text, is: 'workload' });
      const home = homes.get(workload.target);
      if (home && home !== host) uses.add(JSON.stringify([host, home]));
    }
  }
  // Leave out this machine if it has neither a role nor a link.
  const linked = new Set(plan.links.flatMap((link) => [link.a, link.b]));
  for (const [key, one] of boxes) {
    if (one.lines.length === 0 && !linked.has(key) && key === LOCAL && boxes.size > 1) boxes.delete(key);
  }
  const edges = [...plan.links.map((link) => [link.a, link.b]), ...[...uses].map((use) => JSON.parse(use) as string[])];
  const columns = place(boxes, edges);
  const links = plan.links.map((link): Wire => wire(boxes, link.a, link.b, link.name, link.impairments, true));
  const direct = [...uses]
    .map((use) => JSON.parse(use) as [string, string])
    // Between hosts of the lab, the links show the connection.
    .filter(([host, home]) => !(linked.has(host) && linked.has(home)))
    .map(([host, home]): Wire => wire(boxes, host, home, '', '', false));
  return { boxes: [...boxes.values()], wires: [...links, ...direct], ...columns };
}

/** Arranges boxes in columns by their distance from the first ones; returns the total size. */
function place(boxes: Map<string, Box>, edges: string[][]): { width: number; height: number } {
  const distance = new Map<string, number>();
  const starts = [...boxes].filter(([, one]) => one.lines.some((line) => line.is === 'workload')).map(([key]) => key);
  let front = starts.length > 0 ? starts : [...boxes.keys()].slice(0, 1);
  for (let column = 0; front.length > 0; column++) {
    for (const key of front) distance.set(key, column);
    const reached = edges.flatMap(([a = '', b = '']) => [...(front.includes(a) ? [b] : []), ...(front.includes(b) ? [a] : [])]);
    front = [...new Set(reached)].filter((key) => boxes.has(key) && !distance.has(key));
  }
  const columns: Box[][] = [];
  for (const [key, one] of boxes) {
    one.height = 44 + Math.min(one.lines.length, 6) * LINE;
    (columns[distance.get(key) ?? 0] ??= []).push(one);
  }
  const heights = columns.map((column) => column.reduce((sum, one) => sum + one.height + GAP.y, -GAP.y));
  const height = Math.max(60, ...heights);
  for (const [index, column] of columns.entries()) {
    let y = (height - (heights[index] ?? 0)) / 2;
    for (const one of column) {
      [one.x, one.y] = [index * (WIDTH + GAP.x), y];
      y += one.height + GAP.y;
    }
  }
  return { width: columns.length * (WIDTH + GAP.x) - GAP.x, height };
}

function wire(boxes: Map<string, Box>, a: string, b: string, name: string, label: string, isLink: boolean): Wire {
  const middle = (one: Box | undefined) => ({ x: (one?.x ?? 0) + WIDTH / 2, y: (one?.y ?? 0) + (one?.height ?? 0) / 2 });
  let [from, to] = [middle(boxes.get(a)), middle(boxes.get(b))];
  if (from.x > to.x) [from, to] = [to, from];
  if (from.x < to.x) {
    from.x += WIDTH / 2;
    to.x -= WIDTH / 2;
  }
  return { name, label, isLink, from, to };
}
