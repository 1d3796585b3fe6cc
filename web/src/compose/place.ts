// Finds a problem's range in the text. The program counts lines and columns from 1, and columns in UTF-16 units, like
// JavaScript.
import type { Problem } from '../lib/api';
import type { Marked } from './context';

/** A problem's range in the text; `null` if it concerns the whole text and is only listed. */
export function place(text: string, problem: Problem): Marked | null {
  if (problem.line == null) return null;
  const from = offset(text, problem.line, problem.column ?? 1);
  const to = problem.end_line != null ? offset(text, problem.end_line, problem.end_column ?? 1) : from + 1;
  const message = [problem.message, problem.advice].filter(Boolean).join(': ');
  return { from, to: Math.min(Math.max(to, from), text.length), message };
}

/** An offset, clamped to the end of its line and of the text. */
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
