// Parses TOML with the position of everything in it, so that a form can change a value and leave the rest of the text,
// including comments, unchanged. It continues after a mistake: the rest of the line is skipped and the mistake is listed.
//
// It checks the syntax only as far as positions need it. Whether an experiment is valid is decided by the program.

export interface Key {
  name: string;
  from: number;
  to: number;
}

interface Place {
  from: number;
  to: number;
}

export interface Scalar extends Place {
  type: 'string' | 'integer' | 'float' | 'boolean' | 'date';
  value: string | number | boolean;
}
export interface List extends Place {
  type: 'list';
  items: Value[];
}
export interface Inline extends Place {
  type: 'inline';
  entries: Entry[];
}
export type Value = Scalar | List | Inline;

/** A key and its value; `from` and `to` span both, without a trailing comment. */
export interface Entry extends Place {
  keys: Key[];
  value: Value;
}

/** The entries below a header, or above the first header. */
export interface Section extends Place {
  kind: 'root' | 'table' | 'element';
  keys: Key[];
  entries: Entry[];
  /** End of its entries: after the line of the last entry, or of the header. */
  end: number;
}

export interface Mistake extends Place {
  message: string;
}

export interface Scan {
  text: string;
  sections: Section[];
  mistakes: Mistake[];
}

class Wrong extends Error {
  constructor(
    readonly at: number,
    message: string,
  ) {
    super(message);
  }
}

const BARE = /[A-Za-z0-9_-]+/y;
const NUMBER = /[+-]?(?:0x[0-9a-fA-F_]+|0o[0-7_]+|0b[01_]+|inf|nan|[0-9][0-9_]*(?:\.[0-9][0-9_]*)?(?:[eE][+-]?[0-9_]+)?)/y;
const DATE = /\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[Zz]|[+-]\d\d:\d\d)?)?|\d\d:\d\d:\d\d(?:\.\d+)?/y;
/** Maximum nesting depth, so that a text can't exhaust the stack. */
const DEPTH_MAX = 60;
const ESCAPES: Record<string, string> = { b: '\b', t: '\t', n: '\n', f: '\f', r: '\r', e: '\x1b', '"': '"', '\\': '\\' };

class Scanner {
  at = 0;
  constructor(readonly text: string) {}

  private match(what: RegExp): string | undefined {
    what.lastIndex = this.at;
    const found = what.exec(this.text)?.[0];
    if (found != null) this.at += found.length;
    return found;
  }

  private fail(message: string): never {
    throw new Wrong(this.at, message);
  }

  private take(what: string): boolean {
    if (!this.text.startsWith(what, this.at)) return false;
    this.at += what.length;
    return true;
  }

  private expect(what: string): void {
    if (!this.take(what)) this.fail(`'${what}' is missing here`);
  }

  spaces(): void {
    this.match(/[ \t]*/y);
  }

  /** Skips white space, line ends and comments. */
  blank(): void {
    this.match(/(?:[ \t\r\n]|#[^\n]*)*/y);
  }

  /** Skips what may follow a value on its line. */
  lineEnd(): void {
    this.match(/[ \t]*(?:#[^\n]*)?\r?/y);
    if (this.at < this.text.length && !this.take('\n')) this.fail('only a comment may follow on this line');
  }

  skipLine(): void {
    const end = this.text.indexOf('\n', this.at);
    this.at = end < 0 ? this.text.length : end + 1;
  }

  keys(): Key[] {
    const keys: Key[] = [];
    do {
      this.spaces();
      const from = this.at;
      const next = this.text[this.at];
      const name = next === '"' || next === "'" ? this.quoted() : this.match(BARE);
      if (name == null) this.fail('a key is missing here');
      keys.push({ name, from, to: this.at });
      this.spaces();
    } while (this.take('.'));
    return keys;
  }

  entry(depth: number): Entry {
    const keys = this.keys();
    const from = keys[0]?.from ?? this.at;
    this.expect('=');
    this.spaces();
    const value = this.value(depth);
    return { keys, value, from, to: value.to };
  }

  private value(depth: number): Value {
    if (depth > DEPTH_MAX) this.fail('values are nested too deeply');
    const from = this.at;
    switch (this.text[this.at]) {
      case '"':
      case "'": {
        const value = this.quoted();
        return { type: 'string', value, from, to: this.at };
      }
      case '[':
        return this.list(depth);
      case '{':
        return this.inline(depth);
    }
    const word = this.match(/(?:true|false)(?![A-Za-z0-9_-])/y);
    if (word) return { type: 'boolean', value: word === 'true', from, to: this.at };
    const date = this.match(DATE);
    if (date) return { type: 'date', value: date, from, to: this.at };
    const number = this.match(NUMBER);
    if (number == null) this.fail('a value is missing here; text needs quotation marks');
    const digits = number.replaceAll('_', '');
    const type = /^[+-]?0[xob]|^[+-]?\d+$/.test(digits) ? 'integer' : 'float';
    return { type, value: Number(digits.replace(/inf$/, 'Infinity')), from, to: this.at };
  }

  private list(depth: number): List {
    const from = this.at;
    const items: Value[] = [];
    this.expect('[');
    for (;;) {
      this.blank();
      if (this.take(']')) break;
      items.push(this.value(depth + 1));
      this.blank();
      if (this.take(',')) continue;
      this.expect(']');
      break;
    }
    return { type: 'list', items, from, to: this.at };
  }

  private inline(depth: number): Inline {
    const from = this.at;
    const entries: Entry[] = [];
    this.expect('{');
    this.blank();
    if (!this.take('}')) {
      do {
        this.blank();
        if (this.text[this.at] === '}') break;
        entries.push(this.entry(depth + 1));
        this.blank();
      } while (this.take(','));
      this.expect('}');
    }
    return { type: 'inline', entries, from, to: this.at };
  }

  /** A string of any of the four kinds. */
  private quoted(): string {
    const quote = this.text[this.at] ?? '"';
    const isLong = this.text.startsWith(quote.repeat(3), this.at);
    const mark = isLong ? quote.repeat(3) : quote;
    this.at += mark.length;
    if (isLong) this.match(/\r?\n/y);
    let value = '';
    for (;;) {
      if (this.at >= this.text.length) this.fail('this string does not end');
      if (this.take(mark)) break;
      const next = this.text[this.at] ?? '';
      if (next === '\n' && !isLong) this.fail('this string does not end on its line');
      this.at += 1;
      value += next === '\\' && quote === '"' ? this.escape(isLong) : next;
    }
    // Up to two quotation marks may precede the closing ones.
    while (isLong && this.take(quote)) value += quote;
    return value;
  }

  private escape(isLong: boolean): string {
    if (isLong && this.match(/[ \t]*\r?\n[ \t\r\n]*/y) != null) return '';
    const next = this.text[this.at] ?? '';
    this.at += 1;
    const plain = ESCAPES[next];
    if (plain != null) return plain;
    const digits = { x: 2, u: 4, U: 8 }[next];
    const hex = digits && this.text.slice(this.at, this.at + digits);
    if (!digits || !hex || !/^[0-9a-fA-F]+$/.test(hex) || hex.length < digits) this.fail(`'\\${next}' has no meaning here`);
    const code = parseInt(hex, 16);
    if (code > 0x10ffff) this.fail('this is not a valid character');
    this.at += digits;
    return String.fromCodePoint(code);
  }

  header(): Section {
    const from = this.at;
    const isElement = this.take('[[');
    if (!isElement) this.expect('[');
    const keys = this.keys();
    this.expect(isElement ? ']]' : ']');
    const to = this.at;
    return { kind: isElement ? 'element' : 'table', keys, entries: [], from, to, end: to };
  }
}

/** Scans a text; mistakes are listed, not thrown. */
export function scan(text: string): Scan {
  const scanner = new Scanner(text);
  let section: Section = { kind: 'root', keys: [], entries: [], from: 0, to: 0, end: 0 };
  const sections = [section];
  const mistakes: Mistake[] = [];
  while (scanner.at < text.length) {
    scanner.blank();
    if (scanner.at >= text.length) break;
    try {
      if (text[scanner.at] === '[') {
        section = scanner.header();
        sections.push(section);
      } else {
        section.entries.push(scanner.entry(0));
      }
      section.end = scanner.at;
      scanner.lineEnd();
      section.end = scanner.at;
    } catch (error) {
      if (!(error instanceof Wrong)) throw error;
      const at = Math.min(error.at, text.length);
      mistakes.push({ from: at, to: Math.min(at + 1, text.length), message: error.message });
      scanner.at = Math.max(scanner.at, at);
      scanner.skipLine();
    }
  }
  return { text, sections, mistakes };
}
