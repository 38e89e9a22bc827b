// Package fault marks the places where a process may be killed or stopped in a
// test. In a normal build Point is empty and costs nothing; a binary built with
// the tag "faultpoints" obeys the environment variable COUNTERSIGN_FAULT.
//
// The points are names of moments, not of functions: "park.after" is the moment
// after a park is durable, whoever wrote it.
package fault
