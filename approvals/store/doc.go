// Package store keeps approvals in Redis. It is the only implementation: the
// same Lua scripts run on Redis, Valkey, Sentinel, Cluster and on miniredis.
//
// Every transition of the state machine in package approvals is one script in
// scripts/, and that script is the one place where the step is decided: reads,
// checks, the new state, the numbered event, the outbox entry and the wake-up
// hint happen together or not at all. Each script states its KEYS, ARGV and
// replies; errors.go turns replies into typed errors.
//
// # Consistency
//
// Every write can be sent twice. A client-made nonce (of the park, the vote, the
// claim) is stored with the write, and the same nonce gets the same answer. So a
// lost reply costs a retry and never a second effect, whether go-redis retries or
// the caller. An error that wraps [approvals.StoreUnavailable] means that it is
// not known whether the write happened; in particular it never means "not
// claimed". Repeat the call with the same nonce, or read the record.
//
// Expiry is decided by Redis's clock inside the step that it forbids. A vote or a
// claim at the deadline's own millisecond is too late. The sweeper only writes
// down what is so already: with every sweeper dead no late yes gets through.
//
// # What a writer to Redis can't do
//
// The fixed part of a record (who asked for what, who may decide, until when) is
// sealed; it is opened for every step, and its deadline and quorums are what the
// scripts are given. Votes carry a MAC by a key that Redis never sees, over the
// namespace, the approval, the digest of the call, the whole requirement, the
// person, the verdict, the source and the latest claim they allow; [Store.Claim]
// counts again those that verify. So a state, a vote, a requirement or a deadline
// written by another hand is found before anything runs ([approvals.Forged]).
//
// Limits: whoever can write to Redis can delete or end approvals, and can put
// back a record as it was before its claim. The claimer's own ledger catches the
// latter where the start is known to it; elsewhere nothing in Redis can. Pins of
// tools can be deleted or put back to what they were; a running gate remembers
// newer ones and writes them again, one that starts then can't know of them.
//
// # Policies
//
// Processes that share a namespace may have loaded different policies, while a
// change is rolled out or because one was forgotten. The one that was published
// last counts ([Store.Publish]), and its digest is the generation. Park, Claim and
// Void carry the digest of the policy that the caller judged by, and their scripts
// compare the two in the step itself: nothing is parked, claimed or made void by a
// policy that is not the newest ([approvals.Behind]). Attaching to what is parked,
// waiting and reading need no policy.
//
// Whoever can write to Redis can name an older policy as the newest, and so stop
// the processes that have the new one. That lets nothing run which some process's
// own policy does not allow.
//
// # Keys
//
// All keys share the hash tag {namespace}, so they live in one slot:
//
//	{ns}:a:ID     hash    the record
//	{ns}:v:ID     string  sealed title and view
//	{ns}:p:ID     string  sealed envelope with the exact bytes
//	{ns}:r:ID     string  sealed result, until result_ttl
//	{ns}:i:MAC    string  ID; finds the twin of a repeated call
//	{ns}:due      zset    the next timer of every record
//	{ns}:pend     zset    what is pending
//	{ns}:torun    zset    what is approved and runs without being collected
//	{ns}:all      zset    every record
//	{ns}:ap:ACTOR set     what is pending of an actor
//	{ns}:ah:ACTOR zset    what an actor parked in the last hour
//	{ns}:nh       zset    what all actors parked in the last hour
//	{ns}:dn:ACTOR hash    an actor's denials in a row, and until when they close
//	{ns}:own:FILE set     claims of a ledger file
//	{ns}:rn:ID    hash    refused votes: their nonces, and how many of each person
//	{ns}:nl:ID    string  who tells about the record at the moment
//	{ns}:hd:NONCE string  a ledger head that was told
//	{ns}:l:MAC    string  a link's approval and person, with a MAC
//	{ns}:pn:NAME  hash    what an upstream's tools were pinned to at run time, sealed
//	{ns}:pt:NAME  string  for which change of them people were asked last, sealed; ends when they may be asked again
//	{ns}:gen      hash    the newest policy: number, digest, when
//	{ns}:gn:NONCE string  a policy that was published
//	{ns}:lb:MAC   hash    what a session carries: keyed name → sealed label
//	{ns}:ob       stream  outbox: ids to look at again
//	{ns}:ev       stream  events, numbered from 1 without gaps
//	{ns}:evn      string  number of the last event
//	{ns}:fence    string  claims so far
//	{ns}:alive    string  a notifier is alive until
//	{ns}:wake     channel hints: "ID REV", and heartbeats
package store
