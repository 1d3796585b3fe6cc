// Completions for a position in the text: tables in headers, keys of the current table, values of a key.
import type { Completion, CompletionContext, CompletionResult } from '@codemirror/autocomplete';
import type { Tooltip } from '@codemirror/view';
import { references, words } from './context';
import { keyText, quote } from './edit';
import { scan, type Section, type Value } from './scan';
import { presetText, type Schema, type Schemas, type Shape } from './schema';
import { find, tree, type Path, type TableNode } from './tree';

/** What a position in the text is in. */
export interface Spot {
  at: 'header' | 'key' | 'value';
  /** The table of a key; for a value, the table and its key. */
  path: Path;
  /** Start of the word being typed. */
  from: number;
  /** Earlier keys and values in the same braces: an unfinished entry isn't in the tree yet. */
  seen: Map<string, string>;
}

const WORD = /[\w.-]*$/;

/** The path of the table opened by a header; for an array element, with its index. */
function pathOf(sections: Section[], section: Section): Path {
  const path: Path = [];
  for (const [index, { name }] of section.keys.entries()) {
    path.push(name);
    const isLike = (one: Section) =>
      one.kind === 'element' && one.keys.length === index + 1 && one.keys.every((key, step) => key.name === section.keys[step]?.name);
    const before = sections.slice(0, sections.indexOf(section) + 1).filter(isLike);
    if (before.length > 0) path.push(before.length - 1);
  }
  return path;
}

/** The context of a position; `null` in comments and after values. */
export function spot(text: string, place: number): Spot | null {
  const lineStart = text.lastIndexOf('\n', place - 1) + 1;
  const line = text.slice(lineStart, place);
  const header = /^\s*\[\[?([\w."' -]*)$/.exec(line);
  if (header && !isInBrackets(text.slice(0, lineStart))) {
    return { at: 'header', path: [], from: place - (header[1]?.length ?? 0), seen: new Map() };
  }
  // The headers above, and the text after the last of them.
  const { sections } = scan(text.slice(0, lineStart));
  const section = sections.at(-1);
  if (!section) return null;
  return within(text.slice(section.to, place), section.to, pathOf(sections, section));
}

/** Whether the text ends inside brackets or braces. */
function isInBrackets(text: string): boolean {
  const last = scan(text).sections.at(-1);
  const rest = text.slice(last?.end ?? 0).replace(/#[^\n]*|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'/g, '');
  return (rest.match(/[[{]/g) ?? []).length > (rest.match(/[\]}]/g) ?? []).length;
}

interface Level {
  kind: '{' | '[' | 'line';
  path: Path;
  key: Path | null;
  index: number;
  seen: Map<string, string>;
}

/** Parses keys, braces and brackets up to the end of the text. */
function within(text: string, offset: number, home: Path): Spot | null {
  const levels: Level[] = [{ kind: 'line', path: home, key: null, index: 0, seen: new Map() }];
  const token = /#[^\n]*|"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|[[\]{}=,\n]|[^\s#"'[\]{}=,]+|[ \t\r]+/g;
  let keyWords = '';
  let last: { text: string; at: number } | null = null;
  for (const found of text.matchAll(token)) {
    const level = levels.at(-1);
    if (!level) return null;
    const [word] = found;
    last = { text: word, at: found.index };
    if (word === '=') {
      level.key = [...level.path, ...keysOf(keyWords)];
      level.seen.set(keywordOf(level.key), '');
      keyWords = '';
    } else if (word === '{' || word === '[') {
      const path: Path = level.kind === '[' ? [...level.path, level.index] : (level.key ?? level.path);
      levels.push({ kind: word, path, key: null, index: 0, seen: new Map() });
      keyWords = '';
    } else if (word === '}' || word === ']') {
      if (levels.length > 1) levels.pop();
    } else if (word === ',' || (word === '\n' && level.kind === 'line')) {
      level.key = null;
      level.index += 1;
      keyWords = '';
    } else if (!word.startsWith('#') && word.trim() !== '' && level.key == null) {
      keyWords += word;
    } else if (level.key != null && word.trim() !== '') {
      level.seen.set(keywordOf(level.key), word.replace(/^["']|["']$/g, ''));
    }
  }
  const level = levels.at(-1);
  if (!level || last?.text.startsWith('#')) return null;
  const isWord = last != null && /^[^\s[\]{}=,]/.test(last.text);
  const from = offset + (isWord && last ? last.at : text.length);
  if (level.kind === '[') return { at: 'value', path: [...level.path, level.index], from, seen: level.seen };
  if (level.key != null) return { at: 'value', path: level.key, from, seen: level.seen };
  return { at: 'key', path: level.path, from, seen: level.kind === '{' ? level.seen : new Map() };
}

function keywordOf(path: Path): string {
  return String(path.at(-1) ?? '');
}

function keysOf(written: string): string[] {
  return scan(`${written} = 0`).sections[0]?.entries[0]?.keys.map(({ name }) => name) ?? [written];
}

/** The table's schema at a path, with the variant selected by its tags. */
function schemaAt(schemas: Schemas, root: TableNode, path: Path, seen: Map<string, string> = new Map()): { schema: Schema; shape: Shape } | undefined {
  const tags = (key: string) => {
    const near = seen.get(key);
    if (near) return near;
    for (let depth = path.length; depth > 0; depth--) {
      const at = find(root, path.slice(0, depth));
      const tag = at?.node === 'table' ? at.children.get(key) : undefined;
      if (tag?.node === 'value' && tag.value.type === 'string') return String(tag.value.value);
    }
    return undefined;
  };
  const schema = schemas.at(path, tags);
  if (!schema) return undefined;
  let shape = schemas.shape(schema);
  if (shape.kind === 'variants') {
    const fit = shape.variants.filter((one) => one.shape.kind === 'table' && one.tags.every(([key, value]) => (tags(key) ?? value) === value));
    if (fit[0]) shape = { kind: 'table', schema: merged(fit.map((one) => (one.shape.kind === 'table' ? one.shape.schema : {}))) };
  }
  return { schema, shape };
}

function merged(schemas: Schema[]): Schema {
  return { ...schemas[0], properties: Object.assign({}, ...schemas.toReversed().map((one) => one.properties)) as Record<string, Schema> };
}

function option(schemas: Schemas, key: string, schema: Schema): Completion {
  const resolved = schemas.resolve(schema);
  const preset = presetText(resolved);
  return { label: key, type: 'property', detail: preset && `default ${preset}`, info: resolved.description ?? words(key) };
}

function headers(schemas: Schemas, root: TableNode): Completion[] {
  return Object.entries(schemas.root.properties ?? {}).flatMap(([key, schema]) => {
    const { kind } = schemas.shape(schema);
    const info = schemas.resolve(schema).description ?? '';
    if (kind === 'map') return [{ label: `${key}.`, info }];
    if (kind === 'table' && key === 'lab') return [{ label: 'lab', info }, { label: 'lab.links.', info: 'A link between two hosts.' }];
    return kind === 'table' || kind === 'tables' ? [{ label: key, info }] : [];
  }).filter(({ label }) => !root.children.has(label) || label === 'fault');
}

function values(schemas: Schemas, root: TableNode, { path, seen }: Spot): Completion[] {
  const key = path.findLast((step) => typeof step === 'string') ?? '';
  const named = references(root, String(key)).map((name): Completion => ({ label: quote(name), info: `named in this experiment` }));
  const schema = schemaAt(schemas, root, path, seen)?.schema;
  if (!schema) return named;
  const shape = schemas.shape(schema);
  const resolved = schemas.resolve(schema);
  if (shape.kind === 'choice') return shape.options.map(({ value, help }) => ({ label: quote(value), ...(help && { info: help }) }));
  if (shape.kind === 'boolean') return ['true', 'false'].map((label) => ({ label, info: resolved.description ?? '' }));
  if (shape.kind === 'variants') return shape.variants.map((one) => ({ label: one.literal, info: one.help }));
  if (named.length > 0) return named;
  const literal = schemas.literal(schema);
  return literal === '""' ? [] : [{ label: literal, info: resolved.description ?? '' }];
}

/** Completes the word being typed. */
export function complete(schemas: () => Schemas | undefined): (context: CompletionContext) => CompletionResult | null {
  return (context) => {
    const known = schemas();
    const text = context.state.doc.toString();
    const here = known && spot(text, context.pos);
    if (!known || !here) return null;
    if (here.from === context.pos && !context.explicit && here.at !== 'header') return null;
    const root = tree(scan(text));
    if (here.at === 'header') return { from: here.from, options: headers(known, root), validFor: WORD };
    if (here.at === 'value') return { from: here.from, options: values(known, root, here), validFor: /^"?[\w.-]*"?$/ };
    const at = schemaAt(known, root, here.path, here.seen);
    if (at?.shape.kind !== 'table') return null;
    const table = find(root, here.path);
    const isSet = (key: string) => here.seen.has(key) || (table?.node === 'table' && table.children.has(key));
    const options = Object.entries(at.shape.schema.properties ?? {})
      .filter(([key]) => !isSet(key))
      .map(([key, schema]) => ({ ...option(known, key, schema), apply: `${keyText(key)} = ` }));
    return { from: here.from, options, validFor: WORD };
  };
}

/** The tooltip for a key: its description. */
export function describe(schemas: Schemas | undefined, text: string, place: number): Tooltip | null {
  if (!schemas) return null;
  const { sections } = scan(text);
  const root = tree(scan(text));
  for (const section of sections) {
    for (const entry of section.entries) {
      const found = keyAt(entry, pathOf(sections, section), place);
      if (!found) continue;
      const at = schemaAt(schemas, root, found.path);
      const said = at?.schema.description;
      return said ? { pos: found.from, end: found.to, create: () => ({ dom: note(said) }) } : null;
    }
  }
  return null;
}

function keyAt(entry: { keys: { name: string; from: number; to: number }[]; value: Value }, home: Path, place: number): { path: Path; from: number; to: number } | null {
  const path = [...home];
  for (const { name, from, to } of entry.keys) {
    path.push(name);
    if (place >= from && place <= to) return { path, from, to };
  }
  return inValue(entry.value, path, place);
}

function inValue(value: Value, path: Path, place: number): { path: Path; from: number; to: number } | null {
  if (place < value.from || place > value.to) return null;
  const inner = value.type === 'inline' ? value.entries.map((one) => keyAt(one, path, place)) : [];
  const items = value.type === 'list' ? value.items.map((one, index) => inValue(one, [...path, index], place)) : [];
  return [...inner, ...items].find((one) => one != null) ?? null;
}

function note(text: string): HTMLElement {
  const made = document.createElement('div');
  made.textContent = text;
  return made;
}
