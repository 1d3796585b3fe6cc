// Edits of the text, as made by the form. Comments and everything else stay unchanged.
import { scan, type Entry, type List, type Section, type Value } from './scan';
import { find, tree, type Node, type Path, type TableNode } from './tree';

/** Replaces the range `from`..`to` of the current text; several changes must not overlap. */
export interface Change {
  from: number;
  to: number;
  insert: string;
}

/** Returns the text with the changes applied. */
export function apply(text: string, changes: Change[]): string {
  const sorted = changes.toSorted((a, b) => b.from - a.from);
  return sorted.reduce((made, { from, to, insert }) => made.slice(0, from) + insert + made.slice(to), text);
}

/** Quotes a TOML string. */
export function quote(text: string): string {
  const escaped = text.replace(/["\\]/g, '\\$&').replace(/\n/g, '\\n').replace(/\t/g, '\\t').replace(/\r/g, '\\r');
  // eslint-disable-next-line no-control-regex
  return `"${escaped.replace(/[\u0000-\u001f\u007f]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`)}"`;
}

export function keyText(name: string): string {
  return /^[A-Za-z0-9_-]+$/.test(name) ? name : quote(name);
}

const dotted = (names: string[]) => names.map(keyText).join('.');

/** Sets the value at a path to a literal, creating missing tables on the way. */
export function set(text: string, path: Path, literal: string): Change[] {
  const scanned = scan(text);
  const root = tree(scanned);
  const found = find(root, path);
  const place = found && valuePlace(found);
  if (place) return [{ from: place.from, to: place.to, insert: literal }];
  // The nearest existing table gets the rest of the path as a dotted key.
  for (let depth = path.length - 1; depth >= 0; depth--) {
    const home = find(root, path.slice(0, depth));
    const rest = path.slice(depth);
    if (home?.node !== 'table' || !rest.every((step) => typeof step === 'string')) continue;
    return [insertInto(text, scanned.sections, home, `${dotted(rest)} = ${literal}`)];
  }
  return [];
}

/** The range of a value's text; `undefined` for tables made by headers. */
function valuePlace(at: Node): Value | undefined {
  if (at.node === 'value') return at.value;
  return at.node === 'table' ? at.inline : at.list;
}

/** Inserts `key = value` into a table, as a new line or inside its braces. */
function insertInto(text: string, sections: Section[], home: TableNode, line: string): Change {
  if (home.inline) return insertInBraces(text, home.inline, line);
  if (home.section && home.section.kind !== 'root') return insertLine(text, home.section.end, line);
  if (home.dotted && !home.section) {
    const { entry, depth } = home.dotted;
    const prefix = text.slice(entry.from, entry.keys[depth - 1]?.to ?? entry.from);
    const inBraces = inlineAround(sections, entry);
    if (inBraces) return { from: entry.to, to: entry.to, insert: `, ${prefix}.${line}` };
    return insertLine(text, afterLine(text, entry.to), `${prefix}.${line}`);
  }
  const root = sections[0];
  if (home.path.length === 0 && root) return insertAtTop(text, root, sections[1], line);
  // A table that is only implied by other headers gets its own, before the first of them.
  const names = home.path.filter((step) => typeof step === 'string');
  const first = sections.find((one) => one.kind !== 'root' && startsWith(one, names));
  const from = first ? first.from : text.length;
  return { from, to: from, insert: `[${dotted(names)}]\n${line}\n\n` };
}

function insertInBraces(text: string, inline: { entries: Entry[]; from: number; to: number }, line: string): Change {
  const last = inline.entries.at(-1);
  if (!last) return { from: inline.from, to: inline.to, insert: `{ ${line} }` };
  const comma = /^\s*,/.exec(text.slice(last.to, inline.to));
  return comma
    ? { from: last.to + comma[0].length, to: last.to + comma[0].length, insert: ` ${line}` }
    : { from: last.to, to: last.to, insert: `, ${line}` };
}

function insertLine(text: string, at: number, line: string): Change {
  const needsBreak = at > 0 && text[at - 1] !== '\n';
  return { from: at, to: at, insert: `${needsBreak ? '\n' : ''}${line}\n` };
}

/** The first key goes below the comments at the top, and above the first header and that header's comments. */
function insertAtTop(text: string, root: Section, next: Section | undefined, line: string): Change {
  if (root.entries.length > 0) return insertLine(text, root.end, line);
  const from = next ? commentsAbove(text, next.from, 0) : text.length;
  const change = insertLine(text, from, line);
  return next ? { ...change, insert: `${change.insert}\n` } : change;
}

function inlineAround(sections: Section[], entry: Entry): boolean {
  return !sections.some((section) => section.entries.includes(entry));
}

function afterLine(text: string, at: number): number {
  const end = text.indexOf('\n', at);
  return end < 0 ? text.length : end + 1;
}

function startOfLine(text: string, at: number): number {
  return text.lastIndexOf('\n', at - 1) + 1;
}

/** Start of the comment lines directly above a position. */
function commentsAbove(text: string, at: number, least: number): number {
  let start = startOfLine(text, at);
  while (start > least) {
    const above = startOfLine(text, start - 1);
    if (above < least || !/^[ \t]*#/.test(text.slice(above, start))) break;
    start = above;
  }
  return start;
}

function startsWith(section: Section, names: string[]): boolean {
  return section.keys.length >= names.length && names.every((name, index) => section.keys[index]?.name === name);
}

/** The sections of the table or element at a path; an element's end at the next element. */
function sectionsOf(sections: Section[], path: Path): Section[] {
  let mine = sections.filter((section) => section.kind !== 'root');
  const names: string[] = [];
  for (const step of path) {
    if (typeof step === 'string') {
      names.push(step);
      mine = mine.filter((section) => startsWith(section, names));
      continue;
    }
    const starts = mine.flatMap((one, index) => (one.kind === 'element' && one.keys.length === names.length ? [index] : []));
    mine = starts[step] == null ? [] : mine.slice(starts[step], starts[step + 1] ?? mine.length);
  }
  return mine;
}

/** Removes the value at a path: a key with its line, a table with its headers, an item of a list. */
export function remove(text: string, path: Path): Change[] {
  const scanned = scan(text);
  const root = tree(scanned);
  const found = find(root, path);
  if (!found) return [];
  const last = path.at(-1);
  const home = find(root, path.slice(0, -1));
  const list = home && listOf(home);
  if (typeof last === 'number' && list) return [withoutItem(text, list.items, last)];
  const changes = sectionsOf(scanned.sections, path).map((section) => withoutSection(text, scanned.sections, section));
  for (const entry of entriesOf(found)) changes.push(withoutEntry(text, scanned.sections, root, entry));
  return changes;
}

/** The entries that make up a node, except those below its own headers. */
function entriesOf(at: Node): Entry[] {
  if (at.node !== 'table') return at.entry ? [at.entry] : [];
  if (at.inline) return at.entry ? [at.entry] : [];
  if (!at.dotted || at.section) return [];
  return [...at.children.values()].flatMap(entriesOf);
}

/** Removes a header with its lines. Comments directly above the next header belong to that header. */
function withoutSection(text: string, sections: Section[], section: Section): Change {
  const next = sections[sections.indexOf(section) + 1];
  const to = next ? commentsAbove(text, next.from, section.end) : text.length;
  return { from: startOfLine(text, section.from), to, insert: '' };
}

function withoutEntry(text: string, sections: Section[], root: TableNode, entry: Entry): Change {
  if (!inlineAround(sections, entry)) {
    return { from: startOfLine(text, entry.from), to: afterLine(text, entry.to), insert: '' };
  }
  const braces = bracesOf(root, entry);
  return withoutItem(text, braces, braces.indexOf(entry));
}

/** All entries in the same braces as this one. */
function bracesOf(at: Node, entry: Entry): Entry[] {
  const within = (inner: { entries: Entry[] } | undefined): Entry[] => (inner?.entries.includes(entry) ? inner.entries : []);
  if (at.node === 'table') {
    const here = within(at.inline);
    return here.length > 0 ? here : [...at.children.values()].flatMap((child) => bracesOf(child, entry));
  }
  return at.node === 'tables' ? at.items.flatMap((item) => bracesOf(item, entry)) : [];
}

/** Removes one item of a comma-separated list. */
function withoutItem(text: string, items: { from: number; to: number }[], index: number): Change {
  const [item, before, after] = [items[index], items[index - 1], items[index + 1]];
  if (!item) return { from: 0, to: 0, insert: '' };
  if (before) return { from: before.to, to: item.to, insert: '' };
  if (after) return { from: item.from, to: after.from, insert: '' };
  const spaces = /[ \t]*$/.exec(text.slice(0, item.from))?.[0].length ?? 0;
  const rest = /^\s*,?[ \t]*/.exec(text.slice(item.to))?.[0].length ?? 0;
  return { from: item.from - spaces, to: item.to + rest, insert: '' };
}

/** Adds a table with its own header and these lines, after similar tables. */
export function addTable(text: string, names: string[], lines: string[] = [], isElement = false): Change[] {
  const { sections } = scan(text);
  const likes = names.slice(0, isElement ? names.length : -1);
  const like = likes.length > 0 ? sections.findLast((one) => one.kind !== 'root' && startsWith(one, likes)) : undefined;
  const header = isElement ? `[[${dotted(names)}]]` : `[${dotted(names)}]`;
  const body = [header, ...lines].join('\n');
  if (like && like !== sections.at(-1)) return [{ from: like.end, to: like.end, insert: `\n${body}\n` }];
  const end = text.length;
  const gap = text.length === 0 ? '' : text.endsWith('\n\n') ? '' : text.endsWith('\n') ? '\n' : '\n\n';
  return [{ from: end, to: end, insert: `${gap}${body}\n` }];
}

/** Adds an item to a list, creating the list if needed. */
export function addItem(text: string, path: Path, literal: string): Change[] {
  const found = find(tree(scan(text)), path);
  const list = found && listOf(found);
  if (!list) return set(text, path, `[${literal}]`);
  const last = list.items.at(-1);
  if (!last) return [{ from: list.from, to: list.to, insert: `[${literal}]` }];
  return [{ from: last.to, to: last.to, insert: `, ${literal}` }];
}

/** The list of a node, if it is written in brackets. */
function listOf(at: Node): List | undefined {
  if (at.node === 'tables') return at.list;
  return at.node === 'value' && at.value.type === 'list' ? at.value : undefined;
}

/** Renames a table wherever its name occurs as a key. */
export function rename(text: string, path: Path, name: string): Change[] {
  const scanned = scan(text);
  const found = find(tree(scanned), path);
  const depth = path.length - 1;
  const places = new Map<number, { from: number; to: number }>();
  for (const section of sectionsOf(scanned.sections, path)) {
    const key = section.keys[path.filter((step) => typeof step === 'string').length - 1];
    if (key) places.set(key.from, key);
  }
  for (const entry of found ? entriesOf(found) : []) {
    const key = entry.keys[depth - keysAbove(scanned.sections, entry)];
    if (key) places.set(key.from, key);
  }
  return [...places.values()].map(({ from, to }) => ({ from, to, insert: keyText(name) }));
}

function keysAbove(sections: Section[], entry: Entry): number {
  return sections.find((section) => section.entries.includes(entry))?.keys.length ?? 0;
}
