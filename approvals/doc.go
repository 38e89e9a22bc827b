// Package approvals holds the words that every part of Countersign shares:
// what an approval is ([Ticket]), the states it goes through ([State]), who may
// decide ([Eligible]) and what can be refused ([Conflict]). It calls nobody.
// Package store keeps approvals; everything said here about atomic steps is
// said of its scripts.
//
// # States
//
//	pending ──► approved ──► executing ──► succeeded
//	   │            │            │    └──► failed
//	   ├► denied    ├► lapsed    ├──────► not_run
//	   ├► expired   ├► withdrawn └──────► unknown ──► succeeded | failed | not_run
//	   ├► withdrawn ├► void
//	   └► void      └► revoked
//
//	pending    waits for people; the earliest deadline of its requirements rules
//	approved   every requirement has its quorum; must be claimed by Ticket.ClaimBy
//	denied     one eligible person said no, at any time while it was pending
//	expired    nobody decided in time; cause "undelivered" when no message reached anyone
//	withdrawn  the caller took it back
//	void       policy, tool, actor or labels no longer fit, or its votes did not verify
//	lapsed     approved, and nobody collected it in time
//	revoked    an eligible approver took the yes back before the claim
//	executing  claimed: one process may forward the call once
//	succeeded  the tool answered; of the gate's own request: its pins are written
//	failed     the tool said error
//	not_run    it is certain that the call was never sent
//	unknown    sent and no answer read, or the claimer is lost; stays until somebody knows
//
// No way leads back to approved, and none from executing or unknown to executing.
// [State.May] is this picture.
//
// # Who moves what
//
//	to                      by
//	pending                 the gate, when policy says that a call needs a yes, or for
//	                        itself when an upstream's tools are not as they were pinned
//	approved, denied        a verified person, through Decide alone
//	expired, lapsed         the clock of the store, inside whichever step meets it
//	withdrawn               the caller, through the gate; the gate, of its own requests
//	void                    the gate: when it sees that a tool is not the one that was
//	                        asked about, and for any cause right before a claim
//	revoked                 an eligible approver, through the operators' API
//	executing               the gate, through Claim, with a nonce of its own
//	succeeded, failed       the claim's nonce; a person for an unknown that ran
//	not_run                 the claim's nonce; a person for an unknown that did not
//	unknown                 the claim's nonce, or the clock at the end of the lease
//
// The claim's nonce is used by its owner, and after the owner's death by whoever has
// taken over its ledger.
//
// # Which policy counts
//
// Park, Claim and Void carry the digest of the policy that the gate judged by. Each
// compares it, in its own step, with that of the policy which any process loaded last
// ([Generation]), and is refused where they differ ([Behind]). So a process with an
// older policy asks nobody, runs nothing and ends nothing by it. Joining what waits
// already needs no policy, and neither do votes: they are for the call, and the claim
// asks whether the policy of then still asks the same people.
//
// # When nobody more is asked
//
// The park's step also holds what bounds the asking: [Caps], and the [Closing] of an
// actor whose approvals people denied several times in a row. The row is counted in
// the step that makes an approval denied. All of them refuse new approvals only
// ([NoRoom]): what waits can still be joined, and what was approved can run.
//
// # The gate's own requests
//
// Tools that differ from what was pinned are asked about by an approval of the actor
// [GateActor], which no caller can be. It has the same states, votes and claim. Its
// run writes pins ([Pin]) and calls no upstream; they are taken only while the claim
// stands, in one step, so whether they were written can always be read: after a crash
// such an approval is succeeded or not_run by them, and unknown only where newer pins
// stand in their place.
//
// # Why a call runs at most once
//
// Only Claim leads to executing. It is one atomic step that takes a record from
// approved, under one nonce, and nothing brings a record back to approved. A
// repeated Claim with the same nonce is the same claim; another nonce is told
// that the approval was used. A claimer forwards only after the claim was
// confirmed and its own ledger has the start of the call on disk, and only while
// its lease has time left by its own clock, counted from before the renewal was
// sent. A process in whose ledger directory any file has a start of that id
// refuses the claim altogether. What can't be known is unknown, and an unknown is
// never run again by itself: people are told.
//
// # Why only the right people
//
// Every vote passes [Eligible] at the moment it is given, against a membership no
// older than [MembershipAge]. The requirements are sealed in the record. Each vote
// carries a MAC over the approval, the digest of the call, the requirement, the
// person, the verdict and the latest claim it allows, by a key that is not in the
// store; the claimer counts them again, and one that does not verify ends the
// approval as void. An empty list means nobody.
//
// # Crash points
//
// A process dies right after the moment in the left column.
//
//	before the park is written      nothing exists; the caller asks again
//	the park is written             pending; the outbox has its entry; a repeated call attaches
//	a message is posted, not noted  the attempt is on the record: the post is looked up before another
//	the vote is written             decided; the click's answer is lost, a second click is told so
//	the claim is written            executing; its owner's ledger has no start: not_run once the
//	                                owner's file is taken over, unknown if that never happens
//	the start is on the ledger      unknown: it may have been sent. The gate's own request: by its
//	                                pins, succeeded or not_run
//	the call is forwarded           unknown
//	the answer is read              unknown: only the dead process knew it
//	the result is on the ledger     succeeded or failed, by recovery; the body is lost, and said to be
//	the result is in the store      succeeded or failed, with its body for result_ttl
//
// The store's process dies: what it confirmed is there after its restart (one node
// with its append-only file); a reply that was lost is asked for again with the same nonce.
//
// # Limits
//
//   - A claimer that is stopped between the last look at its lease and the send,
//     for longer than the lease, still sends when it goes on. By then the record
//     says unknown, so nobody else runs it and nobody is told that it did not run,
//     unless a person has resolved it so: then a repeat may have been approved and
//     run too. Before resolving --not-run, make sure that the claimer is gone.
//   - With replicas the store forgets a confirmed claim when a master dies whose
//     replicas did not have it. Claims therefore wait for redis.wait_replicas of
//     them. A replica that loses its own memory and is then promoted is not covered.
//   - A power cut can take the last second from a store whose append-only file is
//     synced once a second. A claim that was in it can be made again; a start in
//     the ledger directory refuses that, on that machine.
//   - Whoever can write to the store can end or delete approvals, and can restore
//     a record as it was before its claim. A process that has the start of the
//     call in its ledger directory refuses the second run; one on another machine
//     can't know.
//   - States are not signed. A writer to the store can make a caller believe that
//     a call was denied or has ended; never that it may run.
//   - Deadlines are of the store's clock. When a replica with another clock is
//     promoted they shift by the difference.
package approvals
