// Package notifier tells people about approvals. The store's outbox holds
// nudges ("look at this approval again"); the [Dispatcher] takes them and brings
// every message of the approval to the record's version. A channel (Slack, a
// ticketing system, a link) is one method, [Channel]; the schedule of retries is
// the dispatcher's alone.
//
// # Nothing is lost
//
// A nudge is done only when every channel shows the record's version, or has
// failed for good at that version, or has nothing to show. Until then it stays
// in the outbox; a dispatcher that dies has its nudges claimed by another. The
// schedule of a failing channel is stored with the approval (Trouble.Next), so
// it survives the process.
//
// # Nothing is posted twice
//
// An approval is worked on by whoever holds its lease, one delivery at a time.
// Before a post the dispatcher writes an attempt mark, after it the message's
// reference. A mark without a reference is a post that may have happened:
// [Message.Attempt] is set, and the channel looks for the message before it posts
// again. A delivery must end within half a lease of the lease's renewal, and a
// post is not begun when a quarter of the lease is gone. What remains is a
// process stopped between that check and its write to the socket for longer
// than the lease: then two messages can exist, and a click on either decides the
// same approval.
//
// # Versions don't go backwards
//
// After a delivery the record is read again: while the message shows an older
// version than the record has, it is brought up to date. The lease is given back
// before the last reading, so that a nudge which another dispatcher could not
// act on, because the lease was taken, is never the only one to know of a
// change; that dispatcher keeps its nudge too, until it has seen for itself.
package notifier
