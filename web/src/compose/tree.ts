// The parsed text as a tree of tables and values, each with its position in the text: what the form shows.
import type { Entry, Inline, List, Scalar, Scan, Section } from './scan';

export type Path = (string | number)[];

/** A table, however it is written: below headers, with dotted keys, or inline. */
export interface TableNode {
  node: 'table';
  path: Path;
  children: Map<string, Node>;
  /** Its own header, if any; for the root, the top of the text. */
  section?: Section;
  /** Its braces, if it is inline. */
  inline?: Inline;
  /** The entry or item that is this table, if it is inline. */
  entry?: Entry;
  /** The last dotted key that created it, and how many parts of that key are the table's own path. */
  dotted?: { entry: Entry; depth: number };
}

/** A value that isn't a table. */
export interface ValueNode {
  node: 'value';
  path: Path;
  value: Scalar | List;
  entry?: Entry;
}

/** A list of tables, each with its own header (`[[fault]]`) or all in brackets. */
export interface TablesNode {
  node: 'tables';
  path: Path;
  items: Node[];
  /** Its brackets, if written that way. */
  list?: List;
  entry?: Entry;
}

export type Node = TableNode | ValueNode | TablesNode;

function table(path: Path): TableNode {
  return { node: 'table', path, children: new Map() };
}

/** Builds the tree of a text. Of duplicates, the first counts: the program rejects the second. */
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

/** The table opened by a header; `undefined` if a value already has its name. */
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

/** The node at a path. */
export function find(root: TableNode, path: Path): Node | undefined {
  let at: Node | undefined = root;
  for (const step of path) {
    if (at?.node === 'table' && typeof step === 'string') at = at.children.get(step);
    else if (at && typeof step === 'number') at = items(at)[step];
    else return undefined;
  }
  return at;
}

/** The names in the table at a path. */
export function names(root: TableNode, path: Path): string[] {
  const at = find(root, path);
  return at?.node === 'table' ? [...at.children.keys()] : [];
}

/** The plain value of a key or a list item. */
export function plain(value: Entry['value']): string | number | boolean | undefined {
  return value.type === 'list' || value.type === 'inline' ? undefined : value.value;
}

/** A node as plain values. */
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
