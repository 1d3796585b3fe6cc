// Completions by position, with a small schema that has each form used by the schema of experiments.
import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import type { CompletionContext } from '@codemirror/autocomplete';
import { complete, spot } from '../src/compose/complete';
import { Schemas } from '../src/compose/schema';

const schemas = new Schemas({
  type: 'object',
  properties: {
    name: { type: 'string', description: 'Its name.' },
    lab: { anyOf: [{ $ref: '#/$defs/Lab' }, { type: 'null' }], description: 'The network.' },
    targets: { type: 'object', additionalProperties: { $ref: '#/$defs/Target' } },
    workloads: { type: 'object', additionalProperties: { $ref: '#/$defs/Workload' } },
    fault: { type: 'array', items: { $ref: '#/$defs/Fault' } },
  },
  $defs: {
    Lab: { type: 'object', properties: { hosts: { type: 'array', items: { type: 'string' } } } },
    Target: { type: 'object', properties: { url: { type: 'string' }, host: { type: ['string', 'null'] } } },
    Workload: {
      type: 'object',
      properties: {
        arrival: { $ref: '#/$defs/Arrival' },
        blocks: { type: 'array', items: { $ref: '#/$defs/Block' } },
        direct: { type: 'boolean', default: true },
      },
    },
    Block: { type: 'object', properties: { size: { type: 'string' }, weight: { type: 'number', default: 1 } }, required: ['size'] },
    Arrival: {
      oneOf: [
        { type: 'object', properties: { kind: { type: 'string', const: 'closed' } }, required: ['kind'] },
        {
          type: 'object',
          properties: { kind: { type: 'string', const: 'open' }, rate: { type: 'number' }, process: { $ref: '#/$defs/Process' } },
          required: ['kind', 'rate'],
        },
      ],
    },
    Process: { oneOf: [{ type: 'string', const: 'constant' }, { type: 'string', const: 'poisson', description: 'Exponential.' }] },
    Fault: { type: 'object', properties: { target: { type: 'string' }, at: { type: 'string' } } },
  },
});

/** The labels of the completions at the `|` of a text. */
function at(marked: string): string[] {
  const pos = marked.indexOf('|');
  const text = marked.replace('|', '');
  const context = { pos, explicit: true, state: { doc: { toString: () => text } } } as unknown as CompletionContext;
  const found = complete(() => schemas)(context);
  for (const { label } of found?.options ?? []) ok(label, `a label at ${marked}`);
  return (found?.options ?? []).map(({ label }) => label);
}

test('keys are those of the table, without the ones that are there', () => {
  deepEqual(at('na|'), ['name', 'lab', 'targets', 'workloads', 'fault']);
  deepEqual(at('[targets.a]\nurl = "x"\nh|'), ['host']);
  deepEqual(at('[[fault]]\nat = "1s"\n[[fault]]\n|'), ['target', 'at']);
  deepEqual(at('[workloads.w]\nblocks = [{ size = "4k", |'), ['weight']);
  deepEqual(at('[workloads.w]\nblocks = [\n  { size = "4k" },\n  { s|'), ['size', 'weight']);
});

test('a table of several forms has the keys of the one that its tag says', () => {
  deepEqual(at('[workloads.w]\narrival = { kind = "open", | }'), ['rate', 'process']);
  deepEqual(at('[workloads.w]\narrival = { kind = "closed", | }'), []);
});

test('values are choices, names of the experiment, and defaults', () => {
  deepEqual(at('[workloads.w]\ndirect = |'), ['true', 'false']);
  deepEqual(at('[workloads.w]\narrival = { kind = "open", process = "p| }'), ['"constant"', '"poisson"']);
  deepEqual(at('[targets.disk]\nurl = "x"\n[[fault]]\ntarget = |'), ['"disk"']);
  deepEqual(at('[lab]\nhosts = ["a", "b"]\n[targets.disk]\nhost = "|'), ['"a"', '"b"', '"local"']);
});

test('headers are the tables of an experiment', () => {
  deepEqual(at('[|'), ['lab', 'lab.links.', 'targets.', 'workloads.', 'fault']);
  deepEqual(at('[lab]\n[[fa|'), ['lab.links.', 'targets.', 'workloads.', 'fault']);
});

test('nothing is completed in a comment, and no place of a text throws', () => {
  deepEqual(at('name = "x" # na|'), []);
  const text = '[workloads.w]\narrival = { kind = "open", process = "p" }\nblocks = [\n  { size = "4k" }, # x\n]\n[[fault]]\nat = \'1s\'\n';
  for (let place = 0; place <= text.length; place++) at(`${text.slice(0, place)}|${text.slice(place)}`);
  equal(spot(text, text.indexOf('"p"') + 2)?.at, 'value');
});
