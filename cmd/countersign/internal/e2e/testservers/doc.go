// Package testservers has the parts around Countersign that the end-to-end
// tests need to be real: an MCP server in a process of its own that writes
// every execution to disk (Upstream), a proxy that loses replies (Proxy), and
// an MCP client that sends and shows bytes (HTTP, Stdio). It is for tests only.
//
// Nothing here uses an MCP library: what a test sees is what was on the wire.
package testservers
