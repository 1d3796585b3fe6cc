// Converts the program's positions to ranges in the text. The program's side has the same example: `serve::tests` of `brunt`.
import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import type { Problem } from '../src/lib/api';
import { place } from '../src/compose/place';

const TEXT = 'name = "😀" nothing\nrepetitions = "x"\n';

function marked(line: number | null, column: number | null, end_line?: number, end_column?: number): string | null {
  const problem: Problem = { line, column, end_line, end_column, message: 'wrong', advice: 'right' };
  const found = place(TEXT, problem);
  return found && TEXT.slice(found.from, found.to);
}

test('columns are units of UTF-16, behind other characters too', () => {
  equal(marked(1, 8, 1, 12), '"😀"');
  equal(marked(1, 13, 1, 20), 'nothing');
  equal(marked(2, 15, 2, 18), '"x"');
});

test('a place is in its line, and in the text', () => {
  equal(marked(1, 17, 1, 99), 'ing');
  equal(marked(1, 99, 2, 12), '\nrepetitions');
  equal(marked(2, 1, 7, 1), 'repetitions = "x"\n');
  equal(marked(9, 9, 9, 9), '');
  equal(marked(3, 1), '');
});

test('what has no end is one character, and what has no place is nowhere', () => {
  equal(marked(1, 1), 'n');
  equal(marked(2, null), 'r');
  equal(marked(null, null), null);
  equal(place(TEXT, { line: 1, column: 1, message: 'wrong', advice: 'right' })?.message, 'wrong: right');
});
