// Package provenance knows where the values of a call come from, as far as a
// gateway can: by what the client says of them ([ParseClaim]) and by what the
// session has been given before ([Sessions]). Rules of the policy ask for it with
// labels(pointer).
//
// # Labels
//
// A label says where a value comes from: [User], [System], [Retrieved], [Model],
// or [Unknown] where nobody said. They are kept by JSON pointer; the pointer "" is
// the session, whose labels have "session:" in front, and [Unknown] where they
// can't be told.
//
// Labels are only ever added. A client's claim is a word about its own values, so
// it may lower the trust in them and not raise it ([Claim.As]): user and system
// count as unknown, and unknown stays on what is claimed, unless the policy takes
// the actor at its word. What a tool gave to a session stays with the session
// for [TTL] after its last use, over restarts and in every process.
//
// # Limits
//
// A gateway sees calls and results, and not what a model does in between. Labels
// help against text that gives orders; they are no boundary. The client names its
// session, so a client that wants to lose its session's labels begins another.
package provenance

import "slices"

// The labels. The set is closed.
const (
	User      = "user"      // a person typed or chose it
	System    = "system"    // a program or prompt of the operator's
	Retrieved = "retrieved" // it came with what a tool fetched
	Model     = "model"     // a model made it up
	Unknown   = "unknown"   // nobody said
)

var all = []string{User, System, Retrieved, Model, Unknown}

// All lists the labels.
func All() []string { return slices.Clone(all) }

// ofSession is a label as the session carries it.
func ofSession(label string) string { return sessionPrefix + label }

const sessionPrefix = "session:"

// Union joins sets of labels, pointer by pointer. The lists are sorted and
// distinct; the arguments stay as they are. Of nothing it is nil.
func Union(sets ...map[string][]string) map[string][]string {
	var out map[string][]string
	for _, set := range sets {
		for p, labels := range set {
			if out == nil {
				out = map[string][]string{}
			}
			out[p] = append(out[p], labels...)
		}
	}
	for p, labels := range out {
		slices.Sort(labels)
		out[p] = slices.Compact(labels)
	}
	return out
}

// Names are all labels of a set, whatever they are on: sorted and distinct.
func Names(set map[string][]string) []string {
	var out []string
	for _, labels := range set {
		out = append(out, labels...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Carried is what the result of a call makes its session carry: what the tool
// produces, and the labels of the call's arguments, since the result may be
// computed from them. The session's own labels are there already.
func Carried(produces []string, set map[string][]string) []string {
	var out []string
	for _, l := range produces {
		out = append(out, ofSession(l))
	}
	for p, labels := range set {
		for _, l := range labels {
			if p != "" {
				out = append(out, ofSession(l))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
