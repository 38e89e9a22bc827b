// Package pins holds what people have agreed an upstream is: the definitions of
// its tools, each with a digest, and how the server is started and names itself.
//
// A [File] is that agreement in writing. `countersign policy pin` writes it, a
// person reads it in a review, and the gate holds back whatever differs from it.
// The file has every definition whole, so that a change can be shown as what was
// and what is; and it is strict: an unknown or doubled key is an error, and so is
// a definition that was edited by hand, since its digest no longer fits.
//
// What a digest covers is a definition's value and not its bytes: the order of
// members, blanks and the spelling of strings are no change, every other thing is
// one, also members that no protocol version knows.
package pins
