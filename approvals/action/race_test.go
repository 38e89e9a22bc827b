//go:build race

package action

// raceEnabled: the race detector makes pools forget, so everything takes more.
const raceEnabled = true
