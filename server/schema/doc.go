// Package schema tells whether a call's arguments fit the inputSchema that its tool
// was listed with. [Compile] reads a schema once; [Schema.Check] judges arguments by
// it, as often as wanted and from many goroutines.
//
// The schema is a stranger's, and so are the arguments. Neither can make a check
// load anything, run for long or go deep: no reference leaves the document, patterns
// are Go's regular expressions, which take linear time, and every step is counted
// ([MaxSteps]). Numbers are compared by their exact decimal value, so none is
// rounded and none is too large.
//
// # What is understood
//
// The drafts 6, 7, 2019-09 and 2020-12 (where $schema names none, the last): type,
// enum, const, minimum and maximum with their exclusive forms, multipleOf, lengths,
// pattern, items, prefixItems, additionalItems, contains, uniqueItems, properties,
// patternProperties, additionalProperties, propertyNames, required, dependencies of
// all kinds, allOf, anyOf, oneOf, not, if, and $ref within the document. format says
// nothing, as in the drafts.
//
// # What is not
//
// A keyword that can't be judged is a gap: a reference that leaves the document or
// leads nowhere, an anchor or a dynamic reference, a pattern that Go can't read, a
// value of the wrong form, unevaluatedItems and unevaluatedProperties beside other
// schemas, another draft. So is one that servers of different languages read
// differently for the value at hand: \w and \d outside ASCII, "." and "$" beside line
// ends, the length of what takes two units in UTF-16, OpenAPI's nullable, a default of
// what is required. It is neither passed nor failed: arguments are refused
// only where the rest refuses them whatever the gap says. Where the outcome hangs on
// a gap, [Verdict.Gaps] names it, so that whoever decides on the call can be told.
package schema
