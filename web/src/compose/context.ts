// What every part of the form needs: the schema, the parsed text, and a way to edit the text.
import { getContext, setContext } from 'svelte';
import type { Change } from './edit';
import { matches, REFERENCES, type Schemas, type Shape } from './schema';
import { names, plain, type Node, type TableNode } from './tree';

/** A problem and its range in the text. */
export interface Marked {
  from: number;
  to: number;
  message: string;
}

export interface Form {
  readonly schemas: Schemas;
  readonly text: string;
  readonly root: TableNode;
  readonly problems: Marked[];
  /** Edits the text; `make` receives the current text. */
  edit: (make: (text: string) => Change[]) => void;
}

const FORM = Symbol('form');

export function provide(form: Form): void {
  setContext(FORM, form);
}

export function form(): Form {
  return getContext<Form>(FORM);
}

/** Names allowed as the value of a key, such as the experiment's hosts. */
export function references(root: TableNode, key: string): string[] {
  const found = (REFERENCES[key] ?? []).flatMap((path) => {
    const list = names(root, path);
    return list.length > 0 ? list : items(root, path);
  });
  const isHost = key === 'host' || key === 'hosts';
  return [...new Set(isHost && found.length > 0 ? [...found, 'local'] : found)];
}

/** The strings in a list, such as `lab.hosts`. */
function items(root: TableNode, path: (string | number)[]): string[] {
  let at: Node | undefined = root;
  for (const step of path) at = at?.node === 'table' ? at.children.get(String(step)) : undefined;
  if (at?.node !== 'value' || at.value.type !== 'list') return [];
  return at.value.items.flatMap((item) => (item.type === 'string' ? [String(item.value)] : []));
}

/** Whether a value fits a shape; a value that doesn't is shown as it is written. */
export function fits(shape: Shape, node: Node): boolean {
  switch (shape.kind) {
    case 'table':
    case 'map':
      return node.node === 'table';
    case 'tables':
      return node.node === 'tables' || (node.node === 'value' && node.value.type === 'list');
    case 'variants':
      return shape.variants.some((one) => variantFits(one.shape, one.tags, node));
    case 'any':
      return true;
  }
  if (node.node !== 'value') return false;
  const { value } = node;
  if (shape.kind === 'list') return value.type === 'list' && value.items.every((item) => plain(item) !== undefined);
  if (value.type === 'list') return false;
  if (shape.kind === 'boolean') return value.type === 'boolean';
  if (shape.kind === 'number') return value.type === 'integer' || value.type === 'float';
  if (shape.kind === 'size') return value.type === 'string' || value.type === 'integer';
  return value.type === 'string';
}

/** Whether a value fits a variant: a table is matched by its tags, or else by its keys. */
export function variantFits(shape: Shape, tags: [string, string][], node: Node): boolean {
  if (!fits(shape, node)) return false;
  if (shape.kind === 'choice' && node.node === 'value' && node.value.type !== 'list') {
    const { value: own } = node.value;
    return shape.options.some(({ value }) => value === own);
  }
  if (shape.kind === 'text' && shape.pattern && node.node === 'value') {
    return matches(shape.pattern, String(plain(node.value)));
  }
  if (node.node !== 'table' || shape.kind !== 'table') return true;
  const known = Object.keys(shape.schema.properties ?? {});
  return tags.length > 0
    ? tags.every(([key, value]) => tagOf(node, key) === value)
    : [...node.children.keys()].every((key) => known.includes(key));
}

export function tagOf(node: TableNode, key: string): string | undefined {
  const at = node.children.get(key);
  return at?.node === 'value' && at.value.type === 'string' ? String(at.value.value) : undefined;
}

/** A value as written in the text. */
export function written(text: string, node: Node): string {
  const place = node.node === 'value' ? node.value : node.node === 'table' ? node.inline : node.list;
  return place ? text.slice(place.from, place.to) : '';
}

/** A key as words. */
export function words(key: string): string {
  return key.replaceAll('_', ' ');
}
