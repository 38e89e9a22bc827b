// Package e2e tests the built binary as its users meet it: real processes, a
// real Redis, real HTTP, an upstream that counts its executions on disk, and a
// fake Slack that is strict where Slack is. It has no code outside its tests.
package e2e
