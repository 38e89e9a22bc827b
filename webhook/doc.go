// Package webhook is the only way in for a person's answer: Slack's button
// clicks, signed callbacks of ticketing systems, the link page, and the
// operators' API. It verifies who answers and hands a [approvals.Vote] to the
// [Decider]; it decides nothing itself, and it knows nothing of the gate.
//
// What every route keeps:
//
//   - A body is read once, raw and capped; it is verified before it is parsed.
//     Nothing binds or reads a form before that.
//   - GET and HEAD change nothing, whoever sends them: mail scanners, link
//     previews and prefetchers do.
//   - Only an exact "approve" approves. Whatever is malformed, unticked, closed
//     or unknown is not an answer.
//   - Host and Origin are checked on every listener; a signed route refuses a
//     query string, since a signature covers the body alone.
//   - An answer is committed before it is confirmed. When it can't be known
//     whether it was, the person is told exactly that.
//   - No token, signature, body or request URI reaches a log.
//
// A vote's nonce is derived from what was signed (the click's own time, the
// webhook-id, the page's nonce), so that a replay or a redelivery is the same
// vote and not a second one; the store makes that atomic with the decision.
package webhook
