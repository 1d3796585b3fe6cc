// The scanner's positions, compared with another TOML parser; and edits that keep everything else unchanged.
import { readFileSync, readdirSync } from 'node:fs';
import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { parse } from 'smol-toml';
import { addItem, addTable, apply, remove, rename, set, type Change } from '../src/compose/edit';
import { scan } from '../src/compose/scan';
import { toPlain, tree, type Path } from '../src/compose/tree';

const read = (text: string) => toPlain(tree(scan(text)));
const other = (text: string): unknown => JSON.parse(JSON.stringify(parse(text)));

/** The shipped examples; the test runner passes their folder. */
const folder = process.env['BRUNT_EXAMPLES'];
const examples = folder ? readdirSync(folder).filter((name) => name.endsWith('.toml')) : [];

test('every example is read as another reader reads it', () => {
  ok(examples.length > 20, 'BRUNT_EXAMPLES names the folder of examples');
  for (const name of examples) {
    const text = readFileSync(`${folder}/${name}`, 'utf8');
    deepEqual(scan(text).mistakes, [], name);
    deepEqual(read(text), other(text), name);
  }
});

test('every form of value is read', () => {
  const text = [
    'a = "x\\t\\"\\u00e9"', "b = 'C:\\x'", 'c = """', 'two', 'lines \\', '   joined"""', "d = '''it's'''",
    'e = [1, 2_000, 0x1F, -7, [1.5e3, +0.25]] # "not a string', 'f = { g.h = true, i = [{ j = 1 }, { j = 2 }] }',
    '"quoted key".k = false', 'l = [', '  1, # one', '  2,', ']', '[m.n]', 'o = 1', '[[p]]', 'q = 1', '[p.r]', 's = 2', '[[p]]',
  ].join('\n');
  deepEqual(scan(text).mistakes, []);
  deepEqual(read(text), other(text));
});

test('a mistake has its place, and what follows is read', () => {
  const at = (text: string) => scan(text).mistakes.map(({ from }) => from);
  deepEqual(at('a = \nb = 2'), [4]);
  deepEqual(read('a = \nb = 2'), { b: 2 });
  deepEqual(at('a = "x\nb = 2'), [6]);
  deepEqual(at('a = 1 2'), [6]);
  deepEqual(at('[a\nb = 1'), [2]);
  deepEqual(at('= 1'), [0]);
  deepEqual(at(`a = ${'['.repeat(100000)}`).length, 1, 'nested without end');
});

test('no beginning of a text hangs or throws', () => {
  const text = 'a = """x\\u00e9"""\n[[b]]\nc.d = { e = [1, \'2\'], f = 1979-05-27T07:32:00Z } # g\n';
  for (let end = 0; end <= text.length; end++) scan(text.slice(0, end));
});

/** Asserts that the edits give the expected text, and that both parsers agree on it. */
function check(text: string, changes: Change[], expected: string): void {
  const made = apply(text, changes);
  equal(made, expected);
  deepEqual(read(made), other(made));
}

const TEXT = `# what it is
name = "x" # the name

# the target
[targets.disk]
url = "null:1MiB"   # nothing

# the load
[workloads.w]
read = 0.5
stop = { time = "1s" } # short
blocks = [{ size = "4k", weight = 3 }, { size = "64k" }]
ramp_up.time = "100ms"

# the first one
[[fault]]
link = "wire"
# the second one
[[fault]]
link = "other"
`;

test('a value is set where it stands', () => {
  const sets = (path: Path, literal: string, from: string, to: string) =>
    check(TEXT, set(TEXT, path, literal), TEXT.replace(from, to));
  sets(['name'], '"y"', '"x" #', '"y" #');
  sets(['targets', 'disk', 'url'], '"null:2MiB"', '"null:1MiB"', '"null:2MiB"');
  sets(['workloads', 'w', 'stop', 'time'], '"2s"', '"1s"', '"2s"');
  sets(['workloads', 'w', 'blocks', 1, 'size'], '"8k"', '"64k"', '"8k"');
  sets(['fault', 1, 'link'], '"wire"', '"other"', '"wire"');
});

test('a new key goes into its table', () => {
  const sets = (path: Path, literal: string, from: string, to: string) =>
    check(TEXT, set(TEXT, path, literal), TEXT.replace(from, to));
  sets(['seed'], '7', '# the name\n', '# the name\nseed = 7\n');
  sets(['targets', 'disk', 'lun'], '1', '# nothing\n', '# nothing\nlun = 1\n');
  sets(['workloads', 'w', 'stop', 'requests'], '9', 'time = "1s" }', 'time = "1s", requests = 9 }');
  sets(['workloads', 'w', 'blocks', 1, 'weight'], '2', '"64k" }', '"64k", weight = 2 }');
  sets(['workloads', 'w', 'ramp_up', 'requests'], '5', '"100ms"\n', '"100ms"\nramp_up.requests = 5\n');
  sets(['workloads', 'w', 'retry', 'count'], '2', '"100ms"\n', '"100ms"\nretry.count = 2\n');
  sets(['fault', 0, 'at'], '"1s"', '"wire"\n', '"wire"\nat = "1s"\n');
  check('', set('', ['name'], '"x"'), 'name = "x"\n');
  check('# c\n\n# t\n[a]\n', set('# c\n\n# t\n[a]\n', ['name'], '"x"'), '# c\n\nname = "x"\n\n# t\n[a]\n');
  check('[a.b]\nc = 1\n', set('[a.b]\nc = 1\n', ['a', 'd'], '2'), '[a]\nd = 2\n\n[a.b]\nc = 1\n');
  check('a = 1', set('a = 1', ['b'], '2'), 'a = 1\nb = 2\n');
  check('a = {}\n', set('a = {}\n', ['a', 'b'], '2'), 'a = { b = 2 }\n');
});

test('what is taken away leaves the rest', () => {
  const removes = (path: Path, ...parts: string[]) =>
    check(TEXT, remove(TEXT, path), parts.reduce((text, part) => text.replace(part, ''), TEXT));
  removes(['name'], 'name = "x" # the name\n');
  removes(['workloads', 'w', 'stop'], 'stop = { time = "1s" } # short\n');
  removes(['workloads', 'w', 'stop', 'time'], ' time = "1s" ');
  removes(['workloads', 'w', 'blocks', 0, 'weight'], ', weight = 3');
  removes(['workloads', 'w', 'blocks', 0], '{ size = "4k", weight = 3 }, ');
  removes(['workloads', 'w', 'ramp_up'], 'ramp_up.time = "100ms"\n');
  removes(['fault', 0], '[[fault]]\nlink = "wire"\n');
  check('a = ["x", ["y", "z"]]\n', remove('a = ["x", ["y", "z"]]\n', ['a', 0]), 'a = [["y", "z"]]\n');
  check('a = ["x", ["y", "z"]]\n', set('a = ["x", ["y", "z"]]\n', ['a', 1, 0], '"w"'), 'a = ["x", ["w", "z"]]\n');
  removes(['fault', 1], '[[fault]]\nlink = "other"\n');
  removes(['targets', 'disk'], '[targets.disk]\nurl = "null:1MiB"   # nothing\n\n');
});

test('tables and items are added beside those like them', () => {
  check(TEXT, addTable(TEXT, ['targets', 'b'], ['url = ""']), TEXT.replace('# nothing\n', '# nothing\n\n[targets.b]\nurl = ""\n'));
  check(TEXT, addTable(TEXT, ['fault'], ['link = "z"'], true), `${TEXT}\n[[fault]]\nlink = "z"\n`);
  check('', addTable('', ['hosts', 'a b']), '[hosts."a b"]\n');
  check('[a]\nb = [1] # c\n', addItem('[a]\nb = [1] # c\n', ['a', 'b'], '2'), '[a]\nb = [1, 2] # c\n');
  check('[a]\n', addItem('[a]\n', ['a', 'b'], '{ c = 1 }'), '[a]\nb = [{ c = 1 }]\n');
});

test('a table gets another name wherever it stands', () => {
  const text = '[lab.links.a]\nx = 1\n[lab.links.a.back]\ny = 2\n[lab.links.b]\n[w]\nr.a = 1\nr.b = 2\n';
  check(text, rename(text, ['lab', 'links', 'a'], 'far away'), text.replaceAll('links.a', 'links."far away"'));
  check(text, rename(text, ['w', 'r'], 's'), text.replaceAll('r.a', 's.a').replaceAll('r.b', 's.b'));
});

test('any value of an example can be set, taken away, and set again', () => {
  const leaves = (at: unknown, path: Path): Path[] => {
    if (Array.isArray(at)) return at.flatMap((item, index) => (typeof item === 'object' ? leaves(item, [...path, index]) : []));
    if (at === null || typeof at !== 'object') return [path];
    return Object.entries(at).flatMap(([name, child]) => leaves(child, [...path, name]));
  };
  const get = (at: unknown, path: Path): unknown => path.reduce((one, step) => (one as Record<string | number, unknown>)?.[step], at);
  let count = 0;
  for (const name of examples) {
    const text = readFileSync(`${folder}/${name}`, 'utf8');
    for (const path of leaves(other(text), [])) {
      const changed = apply(text, set(text, path, '"changed"'));
      equal(get(other(changed), path), 'changed', `${name}: ${path.join('.')}`);
      const without = apply(text, remove(text, path));
      equal(get(other(without), path), undefined, `${name}: ${path.join('.')} is gone`);
      const again = apply(without, set(without, path, '"again"'));
      equal(get(other(again), path), 'again', `${name}: ${path.join('.')} is back in\n${again}`);
      const comments = (one: string) => one.split('\n').filter((line) => /^\s*#/.test(line)).join('\n');
      equal(comments(again), comments(text), `${name}: comments stay`);
      count += 1;
    }
  }
  ok(count > 300, String(count));
});
