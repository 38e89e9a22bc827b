// Package gate is the pipeline that every tools/call goes through: judge, then
// run or park, hold, claim, forward, finish. It knows nothing of HTTP, of Redis or
// of the SDK; the edge hands it a [Request] and writes down its [Answer].
//
// # Where things are
//
//	call.go, judge.go        a call from its arrival to its answer; the three gates
//	facts.go, labels.go      what it is judged by, and where its values come from
//	arguments.go, limit.go   what is refused before people are asked
//	park.go, hold.go         asking them, and waiting with the caller; collect.go joins later
//	run.go, claim.go         an approved call; forward.go sends it, and allowed ones too
//	recover.go               the claims of dead processes
//	catalogue.go, watch.go   the upstreams' lists of tools, read for calls and unasked
//	pins.go, pinboard.go     what a list is compared with, and what is remembered of it
//	notice.go, ask.go        what follows from a difference; definitions.go is the question,
//	                         pinrun.go carries a yes out
//	reload.go                another policy
//	record.go                what the ledger is told; answer.go and words.go, the callers
//
// # What holds for every call
//
// A call draws its own operation id. Before anything else happens, a decision is
// on the ledger; where the ledger can't be written, nothing runs. Three gates
// that share no code stand before the upstream: the list gate (is the tool shown
// at all), the call gate (what does the policy say to this call), and a third
// check right before the bytes leave, which asks the policy of that moment. Only
// the third makes the permit that forwarding takes.
//
// # What people are asked
//
// A reviewed call is put before people only where its requester is known, it is
// short enough to be read, and the tool's listed inputSchema does not refuse its
// arguments; then the policy's rates, its caps and the row of people's denials are
// asked, the last two inside the step that parks. What is parked already is joined
// before any of them, and a call that in the end made no card has used up nothing.
//
// Where the policy only observes an upstream, such a call goes the way of an allowed
// one, up to the end that the policy names; its decision says who would have been
// asked (observe.go). The third check asks the clock again. What people were asked
// about before is joined all the same (observe_twin.go).
//
// # From parked to forwarded
//
// There is one way (claim.go, run.go), and it takes these steps in this order:
//
//  1. Load the record, as the same actor. It must say approved.
//  2. Compute the digest of the stored envelope again; it must be the one that
//     people were shown.
//  3. Count again the votes that verify.
//  4. Judge with the current policy, once as the actor was and once as it is. It
//     must still ask the same people on the same routes, and none of those who
//     agreed may count as a requester now.
//  5. Read the upstream's tools again, and what is pinned. The server and the called
//     tool's definition must be the same, and not held; the order of the list and
//     of keys is no difference.
//  6. No ledger in this process's directory may have a start of this approval: a
//     record put back into the store is found by that.
//  7. Claim, under the version of the record that was judged, and by the policy
//     that is the newest in all processes. One caller in all of them wins. An
//     unclear reply is asked for again with the same nonce.
//  8. Write exec_start, with the votes and what was shown; wait until it is
//     durable.
//  9. Renew the lease, then the third check, and the tool's definition again if
//     the upstream's list may have moved.
//  10. Forward the stored bytes to the process that listed that definition, on a
//     context that no caller ends, and not a byte of them later than half a lease
//     after the renewal was sent. Both clocks are asked right before the write: the
//     wall clock also counts the time that the machine was suspended.
//  11. Write result; then finish the record, with the sealed answer, in one step.
//
// A misfit in 2 to 6 ends the approval as void, if it is one by the newest policy.
// After 7 it ends as not_run, which is said only where not a byte was written.
//
// # Another policy
//
// A call is judged by one [State]: policy, people, callers and upstreams of one
// moment. What is parked or claimed names the policy that it was judged by, and the
// store compares that with the one that was loaded last by any process, in the step
// itself. So a process that was not reloaded asks nobody and runs nothing that was
// approved, until it has the newest policy; calls that need nobody go on, and so do
// waiting and collecting. A reload of this process between the judgement and the
// park has the call judged again ([Gate.Exchange]); between the claim and the first
// byte the third check stops it. A reload of another process there does not: at the
// claim it was the newest policy that allowed the call.
//
// # A crash at each point
//
//	before 7            the record is as it was; the next caller goes on
//	between 7 and 8     no exec_start: Recover makes it not_run
//	between 8 and 10    exec_start alone: Recover can't tell, and makes it unknown
//	between 10 and 11   the same: unknown, never run again by itself
//	after result        Recover makes it succeeded or failed, its body lost
//
// A process that never returns leaves unknown when its lease ends.
//
// # Pins
//
// Every list that is read is compared with what is pinned (pins.go): in the file,
// or at run time, in the store and in memory (pinboard.go). A tool that differs is
// held. What a reading brings up is seen to beside the calls (notice.go): records,
// pins to be written, approvals to be voided, people to be asked (ask.go). Nothing is
// void on the word of memory alone: the store is asked first.
//
// The gate's own request is an approval like any other, and its run is the writing
// of pins (pinrun.go). The store takes them only while the claim stands, so that
// after a crash they say whether it was carried out: Recover makes it succeeded or
// not_run, and not unknown.
//
// # What can't be closed
//
// Between the last look at the clocks and the kernel taking the bytes a process
// can be stopped for any time. A process that is stopped exactly there, for longer
// than half a lease, writes its call after others have been told that its outcome
// is unknown. It is still the only one that ever writes it: nobody claims again.
// Only an upstream that refuses an old fence could close this.
//
// A writer to Redis who puts back a whole record from before its claim is found
// by the ledgers in this process's directory. A replica whose directory does not
// hold the start can't know of it.
//
// # Labels
//
// Where a policy asks for labels (labels.go), what the session carries is read for
// the judgement and once more for the last check; an approved call is judged by
// what it was parked with and by all that is known since, so that what became known
// can stop it and never lifts a question. A session is labelled with what a call
// brings after the last look at it and before the call is forwarded: a crash at any
// point then leaves the label without the result, and never the result without the
// label. Every other session that is handed the result is labelled first. Nothing
// here waits for the store of labels for long: without it sessions are unknown.
//
// # Waiting
//
// A caller waits at most for its hold, which bounds the wait and the run
// together. Its leaving ends the wait and nothing else, unless the route says
// that it withdraws the request. A stop of the process ends waits too, and is
// nobody's leaving ([ErrStopping]). All callers of an approval in one process share
// one run; the first gets the answer as it came, the others get it marked.
package gate
