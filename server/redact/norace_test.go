//go:build !race

package redact

// raceEnabled: the race detector makes pools forget, so everything takes more.
const raceEnabled = false
