// What a text says, as tables and values by path, each with its place in the text: what the form shows.
import type { Entry, Inline, List, Scalar, Scan, Section } from './scan';

export type Path = (string | number)[];

/** A table, whichever way it is written: below headers, by dotted keys, or inline. */
export interface TableNode {
  node: 'table';
  path: Path;
  children: Map<string, Node>;
  /** Its own header, when it has one; the root's is the top of the text. */
  section?: Section;
  /** The braces, when it is inline. */
  inline?: Inline;
  /** The entry or item that is this table, when it is inline. */
  entry?: Entry;
  /** The last of the dotted keys that make it, in whose section, and how many of their keys are its own path. */
  dotted?: { entry: Entry; depth: number };
}

/** A value that is no table. */
export interface ValueNode {
  node: 'value';
  path: Path;
  value: Scalar | List;
  entry?: Entry;
}

/** A list of tables, with a header each (`[[fault]]`) or in brackets. */
export interface TablesNode {
  node: 'tables';
  path: Path;
  items: Node[];
  /** The brackets, when it is written so. */
  list?: List;
  entry?: Entry;
}

export type Node = TableNode | ValueNode | TablesNode;

function table(path: Path): TableNode {
  return { node: 'table', path, children: new Map() };
}

/** The tree of a text. Of what is there twice, the first counts: the program refuses the second. */
export function tree(scan: Scan): TableNode {
  const root = table([]);
  for (const section of scan.sections) {
    const home = section.kind === 'root' ? root : open(root, section);
    if (!home) continue;
    home.section ??= section;
    for (const entry of section.entries) put(home, entry, 0);
  }
  return root;
}

/** The table that a header opens; none where its name is taken by a value. */
function open(root: TableNode, section: Section): TableNode | undefined {
  let at = root;
  for (const [index, { name }] of section.keys.entries()) {
    const isLast = index === section.keys.length - 1;
    const path = [...at.path, name];
    let next = at.children.get(name);
    if (isLast && section.kind === 'element') {
      if (!next) at.children.set(name, (next = { node: 'tables', path, items: [] }));
      if (next.node !== 'tables' || next.list) return undefined;
      const item = table([...path, next.items.length]);
      next.items.push(item);
      return item;
    }
    if (!next) at.children.set(name, (next = table(path)));
    if (next.node === 'tables') next = next.items.at(-1);
    if (next?.node !== 'table' || next.inline) return undefined;
    at = next;
  }
  return at;
}

function put(home: TableNode, entry: Entry, first: number): void {
  let at = home;
  for (const [index, { name }] of entry.keys.entries()) {
    if (index < first) continue;
    const path = [...at.path, name];
    if (index === entry.keys.length - 1) {
      if (!at.children.has(name)) at.children.set(name, node(path, entry.value, entry));
      return;
    }
    let next = at.children.get(name);
    if (!next) at.children.set(name, (next = table(path)));
    if (next.node !== 'table') return;
    next.dotted = { entry, depth: index + 1 };
    at = next;
  }
}

function node(path: Path, value: Entry['value'], entry?: Entry): Node {
  if (value.type === 'inline') {
    const made: TableNode = { ...table(path), inline: value, entry };
    for (const one of value.entries) put(made, one, 0);
    return made;
  }
  if (value.type === 'list' && value.items.some((item) => item.type === 'inline')) {
    return { node: 'tables', path, list: value, entry, items: value.items.map((item, index) => node([...path, index], item)) };
  }
  return { node: 'value', path, value, entry };
}

/** The items of a list, tables or not. */
export function items(at: Node): Node[] {
  if (at.node === 'tables') return at.items;
  if (at.node !== 'value' || at.value.type !== 'list') return [];
  return at.value.items.map((item, index) => node([...at.path, index], item));
}

/** What is at a path. */
export function find(root: TableNode, path: Path): Node | undefined {
  let at: Node | undefined = root;
  for (const step of path) {
    if (at?.node === 'table' && typeof step === 'string') at = at.children.get(step);
    else if (at && typeof step === 'number') at = items(at)[step];
    else return undefined;
  }
  return at;
}

/** Names in the table at a path. */
export function names(root: TableNode, path: Path): string[] {
  const at = find(root, path);
  return at?.node === 'table' ? [...at.children.keys()] : [];
}

/** The plain value of a list's item or of a key. */
export function plain(value: Entry['value']): string | number | boolean | undefined {
  return value.type === 'list' || value.type === 'inline' ? undefined : value.value;
}

/** Everything as plain values. */
export function toPlain(at: Node): unknown {
  if (at.node === 'table') return Object.fromEntries([...at.children].map(([name, child]) => [name, toPlain(child)]));
  if (at.node === 'tables') return at.items.map(toPlain);
  return plainOf(at.value);
}

function plainOf(value: Entry['value']): unknown {
  if (value.type === 'list') return value.items.map(plainOf);
  if (value.type === 'inline') return toPlain(node([], value));
  return value.value;
}
