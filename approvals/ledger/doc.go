// Package ledger keeps the record of who asked for what, who let it happen and
// what came of it: append-only files of one canonical JSON line a record,
// chained by SHA-256, durable when [Ledger.Append] returns.
//
// # Files
//
// Each process and boot has its own file, "<utc>-<random>.jsonl", created new,
// mode 0600 in a directory of mode 0700, and held under flock for as long as
// the process lives. The name without ".jsonl" is the ledger's id; it stays the
// same until [Ledger.Close]. A file is opened for appending only; nothing in
// this package can write to a place already written, shorten a file or read it
// back in order to append.
//
// # Lines
//
// A line is a JSON object with its keys in byte order, no white space, numbers
// as plain integers, strings as UTF-8 with only the quote and the backslash
// escaped (control characters are refused, so nothing else needs an escape), and
// one newline. Readers must split on that newline alone: U+2028 and its like
// stand in strings as they are. sha256 is the hex SHA-256 of the ASCII
// prev_sha256 followed by the line without its sha256 member; the first record's
// prev_sha256 is [Genesis]. Any JSON library can check it:
//
//	sha256((prev + json.dumps(rec, sort_keys=True, separators=(",", ":"),
//	        ensure_ascii=False)).encode())   # rec without "sha256"
//
// # Durability
//
// One goroutine writes. It takes everything that is waiting, writes it with one
// call and syncs once, so an append waits at most for the sync that was running
// and one of its own, however many others append. The cost does not depend on
// the length of the file.
//
// # When the disk fails
//
// After a failed write or sync nobody knows what the file holds: perhaps all of
// the batch, perhaps half a line. That file is never written to again, never
// cut, and stays locked. Every append of the batch returns [ErrUnwritable]. The
// next append tries a fresh file, "<id>.2.jsonl" and so on, whose first record
// names the file it follows and the last record there that was acknowledged. If
// that fails too, the append returns ErrUnwritable and the unused file is
// removed: no record in it was ever acknowledged. So nothing can run while the
// ledger can't be written, and work goes on by itself when it can.
//
// A record whose append failed may still be in the file. Readers must take a
// record as "this was going to happen", as they must for a process that died
// right after its append.
//
// # After a crash
//
// A process that is killed leaves at most one torn line, the last of its file.
// The next [Open] in that directory writes a "recovered" record that names the
// file, its last whole record and how many bytes are torn; the file itself stays
// as it is, and [Verify] goes on calling it torn. [Adopt] takes over the files
// of dead processes, so that what they left open can be settled. Nothing is settled
// by a ledger that can't be read whole, or that lacks a file which one of its others
// says it follows.
//
// # What it proves
//
// The chain shows an edit, a removal in the middle, an insertion, a reordering.
// It does not show that a file was cut after a whole line, or written anew from
// the start by someone who can write the directory: for that the last hash has
// to be kept somewhere else ([Ledger.Head]).
//
// Locks are POSIX flock. On a system without it Open says so and fails. A
// network file system must honour flock and fsync.
package ledger
