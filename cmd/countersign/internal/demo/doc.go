// Package demo is what `countersign demo` shows: an order desk as a real MCP
// server, a configuration that puts it behind the gate, an agent that calls it
// over real HTTP, and the click, or the attacks, that follow.
//
// The package needs nothing of the gate but its addresses and secrets ([Parts]):
// it is a client like any other. What it claims at the end it has from the
// desk's own file, which counts every tool that ran.
package demo
