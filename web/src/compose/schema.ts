// What the JSON Schema of experiment files says about a key: which control it needs, its help, and the value of a new one.
import { quote } from './edit';

export interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  title?: string;
  description?: string;
  type?: string | string[];
  const?: unknown;
  enum?: unknown[];
  default?: unknown;
  pattern?: string;
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  required?: string[];
  items?: Schema;
  minItems?: number;
  anyOf?: Schema[];
  oneOf?: Schema[];
}

/** One of several forms that a value may have. */
export interface Variant {
  label: string;
  help: string;
  schema: Schema;
  shape: Shape;
  /** The literal of a new value of this form. */
  literal: string;
  /** The keys with a fixed value that identify a table of this form. */
  tags: [key: string, value: string][];
}

export type Shape =
  | { kind: 'text'; pattern?: string; help: string }
  | { kind: 'number'; whole: boolean }
  | { kind: 'size'; help: string }
  | { kind: 'boolean' }
  | { kind: 'choice'; options: { value: string; help: string }[] }
  | { kind: 'table'; schema: Schema }
  | { kind: 'map'; of: Schema }
  | { kind: 'list'; of: Schema; item: Shape }
  | { kind: 'tables'; of: Schema }
  | { kind: 'variants'; variants: Variant[] }
  | { kind: 'any' };

export class Schemas {
  constructor(readonly root: Schema) {}

  /** The first line of a new experiment: the version of defaults that it is written for. */
  firstLine(): string {
    const shape = this.shape(this.root.properties?.written_for ?? {});
    const newest = shape.kind === 'choice' ? shape.options.at(-1) : undefined;
    return newest ? `written_for = ${quote(newest.value)}\n` : '';
  }

  /** Follows references and drops `null`, which TOML doesn't have. The description nearest to the key wins. */
  resolve(schema: Schema): Schema {
    let at = schema;
    let description = schema.description;
    let preset = schema.default;
    for (let steps = 0; steps < 20; steps++) {
      const options = (at.anyOf ?? at.oneOf)?.filter((one) => one.type !== 'null');
      let next: Schema | undefined;
      if (at.$ref) next = this.root.$defs?.[at.$ref.replace('#/$defs/', '')];
      else if (options?.length === 1) next = options[0];
      if (!next) break;
      at = next;
      description ??= at.description;
      preset ??= at.default;
    }
    return { ...at, description, default: preset };
  }

  shape(schema: Schema): Shape {
    const at = this.resolve(schema);
    const options = (at.oneOf ?? at.anyOf)?.filter((one) => one.type !== 'null').map((one) => this.resolve(one));
    if (options) return this.ofOptions(at, options);
    if (at.enum) return { kind: 'choice', options: at.enum.map((value) => ({ value: String(value), help: '' })) };
    if (at.const != null) return { kind: 'choice', options: [{ value: String(at.const), help: at.description ?? '' }] };
    const type = Array.isArray(at.type) ? at.type.find((one) => one !== 'null') : at.type;
    switch (type) {
      case 'string':
        return { kind: 'text', pattern: at.pattern, help: at.pattern ? (this.unit(schema) ?? '') : '' };
      case 'integer':
      case 'number':
        return { kind: 'number', whole: type === 'integer' };
      case 'boolean':
        return { kind: 'boolean' };
      case 'array':
        return this.ofArray(at.items ?? {});
      case 'object':
        if (at.properties) return { kind: 'table', schema: at };
        return typeof at.additionalProperties === 'object' ? { kind: 'map', of: at.additionalProperties } : { kind: 'any' };
    }
    return { kind: 'any' };
  }

  private ofArray(of: Schema): Shape {
    const item = this.shape(of);
    if (item.kind === 'table' || item.kind === 'variants') return { kind: 'tables', of };
    return item.kind === 'map' || item.kind === 'any' || item.kind === 'tables' ? { kind: 'any' } : { kind: 'list', of, item };
  }

  private ofOptions(at: Schema, options: Schema[]): Shape {
    if (options.every((one) => one.const != null || one.enum)) {
      const choices = options.flatMap((one) =>
        (one.enum ?? [one.const]).map((value) => ({ value: String(value), help: one.description ?? '' })),
      );
      return { kind: 'choice', options: choices };
    }
    // A number, or a number with a unit, such as sizes.
    if (options.length === 2 && options[0]?.type === 'integer' && options[1]?.pattern) {
      return { kind: 'size', help: this.resolve(at).description ?? '' };
    }
    return { kind: 'variants', variants: options.flatMap((one) => this.variants(one)) };
  }

  private variants(option: Schema): Variant[] {
    const help = option.description ?? '';
    if (option.const != null) {
      const value = String(option.const);
      return [{ label: value, help, schema: option, shape: { kind: 'choice', options: [{ value, help }] }, literal: quote(value), tags: [] }];
    }
    const shape = this.shape(option);
    const tags = Object.entries(option.properties ?? {}).flatMap(([key, one]): [string, string][] =>
      one.const == null ? [] : [[key, String(one.const)]],
    );
    const named = tags[0]?.[1] ?? option.required?.[0];
    const label = shape.kind === 'table' ? (named ?? 'settings') : (WORDS[shape.kind] ?? shape.kind);
    return [{ label, help, schema: option, shape, literal: this.literal(option), tags }];
  }

  /** The description of the referenced type, which names the units. */
  unit(schema: Schema): string | undefined {
    for (const one of [schema, ...(schema.anyOf ?? []), ...(schema.items ? [schema.items] : [])]) {
      if (one.$ref) return this.root.$defs?.[one.$ref.replace('#/$defs/', '')]?.description;
    }
    return undefined;
  }

  /** The initial value: the default, or the smallest value allowed by its form. */
  literal(schema: Schema): string {
    const at = this.resolve(schema);
    const isPlain = ['string', 'number', 'boolean'].includes(typeof at.default);
    if (isPlain) return typeof at.default === 'string' ? quote(at.default) : String(at.default);
    const shape = this.shape(schema);
    switch (shape.kind) {
      case 'number':
        return '1';
      case 'boolean':
        return 'true';
      case 'size':
        return '"4KiB"';
      case 'choice':
        return quote(shape.options[0]?.value ?? '');
      case 'table':
        return `{ ${this.requiredLines(shape.schema).join(', ')} }`.replace('{  }', '{}');
      case 'map':
        return '{}';
      case 'list':
        return '[]';
      case 'tables':
        return `[${this.literal(shape.of)}]`;
      case 'variants':
        return shape.variants[0]?.literal ?? '""';
      case 'text':
        return quote(EXAMPLES.find(([example]) => shape.pattern && matches(shape.pattern, example))?.[0] ?? '');
      case 'any':
        return '""';
    }
  }

  /** `key = value` for each required key of a table. */
  requiredLines(schema: Schema): string[] {
    const at = this.resolve(schema);
    return (at.required ?? []).map((key) => {
      const one = at.properties?.[key] ?? {};
      return `${key} = ${one.const != null ? quote(String(one.const)) : this.literal(one)}`;
    });
  }

  /** The schema at a path; in a map, every name has the same schema. */
  at(path: (string | number)[], tags: (key: string) => string | undefined = () => undefined): Schema | undefined {
    let at: Schema | undefined = this.root;
    for (const step of path) {
      if (!at) return undefined;
      at = this.step(this.shape(at), step, tags);
    }
    return at && this.resolve(at);
  }

  private step(shape: Shape, step: string | number, tags: (key: string) => string | undefined): Schema | undefined {
    if (typeof step === 'number') return shape.kind === 'tables' || shape.kind === 'list' ? shape.of : undefined;
    if (shape.kind === 'table') return shape.schema.properties?.[step];
    if (shape.kind === 'map') return shape.of;
    if (shape.kind === 'variants') {
      const fits = shape.variants.filter((one) => one.tags.every(([key, value]) => (tags(key) ?? value) === value));
      for (const one of fits) {
        const found = this.step(one.shape, step, tags);
        if (found) return found;
      }
    }
    return undefined;
  }
}

const WORDS: Partial<Record<Shape['kind'], string>> = {
  text: 'text',
  number: 'number',
  list: 'list',
  tables: 'list',
  map: 'settings',
  boolean: 'yes or no',
};

/** Initial values to try for a pattern. */
const EXAMPLES: [string][] = [['1s'], ['1Gb/s'], ['5%'], ['4KiB'], ['normal']];

/** Whether a text matches a pattern. */
export function matches(pattern: string, text: string): boolean {
  return new RegExp(pattern, 'u').test(text);
}

/** A short form of the default, for an empty control. */
export function presetText(schema: Schema): string {
  const preset = schema.default;
  if (preset == null) return '';
  return typeof preset === 'object' ? JSON.stringify(preset) : String(preset);
}

/** Keys that refer to other parts of the experiment, and the tables with those parts. */
export const REFERENCES: Record<string, (string | number)[][]> = {
  host: [['hosts'], ['lab', 'hosts']],
  hosts: [['hosts'], ['lab', 'hosts']],
  between: [['hosts'], ['lab', 'hosts']],
  link: [['lab', 'links']],
  target: [['targets']],
  targets: [['targets']],
  workload: [['workloads']],
  workloads: [['workloads']],
};
