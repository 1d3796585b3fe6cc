// Where a problem is in the text. The program counts lines and columns from 1, columns in units of UTF-16: as JavaScript
// counts characters.
import type { Problem } from '../lib/api';
import type { Marked } from './context';

/** The part of the text that a problem is about; `null` of one that is about the whole: it stands in the list alone. */
export function place(text: string, problem: Problem): Marked | null {
  if (problem.line == null) return null;
  const from = offset(text, problem.line, problem.column ?? 1);
  const to = problem.end_line != null ? offset(text, problem.end_line, problem.end_column ?? 1) : from + 1;
  const message = [problem.message, problem.advice].filter(Boolean).join(': ');
  return { from, to: Math.min(Math.max(to, from), text.length), message };
}

/** A place that is not beyond the end of its line, nor of the text. */
function offset(text: string, line: number, column: number): number {
  let start = 0;
  for (let left = line - 1; left > 0; left--) {
    const end = text.indexOf('\n', start);
    if (end < 0) return text.length;
    start = end + 1;
  }
  const end = text.indexOf('\n', start);
  return Math.min(start + Math.max(0, column - 1), end < 0 ? text.length : end);
}
