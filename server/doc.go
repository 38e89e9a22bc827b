// Package server is the MCP edge: it reads what callers send, tells who they
// are, hands tool calls to the gate, and writes what comes back, over streamable
// HTTP and over stdio, for both eras of the protocol on one endpoint.
//
// # Bytes
//
// A request is split once, by action.Parse. The frames that carry user data
// (tools/list, tools/call) never enter the MCP SDK's codec: the argument bytes
// that were judged are the bytes that are forwarded, and a result goes back byte
// for byte (line breaks between tokens become spaces, so that an answer is one
// line). Only initialize, notifications/initialized, server/discover, ping and the
// end of a session reach the SDK, each after our own parser accepted it. Every
// other method is refused here with -32601. A second lock inside the SDK's server
// refuses data methods there too.
//
// # Eras
//
// 2026-07-28 is stateless: each request carries its version, client and
// capabilities in _meta, mirrored in headers that must agree with the body.
// Earlier revisions begin with initialize and, over HTTP, hold a session, which is
// bound to the actor and the path that opened it and lives in this process only:
// elsewhere it is 404, and the client initializes again. Which era a request
// belongs to is decided by the MCP-Protocol-Version header on HTTP and by _meta on
// stdio.
//
// # Streams
//
// An answer is one JSON body, as long as nothing had to be sent before it. The
// first news of a waiting call, a progress notification or a keepalive turns it
// into an event stream; from then on an error is an event too, and the HTTP
// status stays 200. Every write has a deadline of its own, so a server's
// WriteTimeout does not end a held call.
//
// A disconnect of an older client is not a cancellation, and of a 2026-07-28
// client it is one, of the wait alone: what happens to the call is the gate's
// decision. After a cancellation nothing is answered.
package server
