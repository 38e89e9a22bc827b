package gate

import (
	"strings"
	"testing"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/pins"
)

// People see what makes it another server: beside what the file has, or, where the
// pins have no more than its digest, as it is now.
func TestTheCardSaysWhatTheOtherServerIs(t *testing.T) {
	server := func(dir, name string) pins.Server {
		s := pins.Describe(pins.Start{Command: []string{"desk-mcp", "--token", "hunter2-hunter2"}, Dir: dir, Env: map[string]string{"DESK_TOKEN": "a-long-secret"}}, name)
		return s
	}
	old := server("/srv/old", "desk")
	d, err := pins.Define([]byte(`{"name":"look"}`))
	if err != nil {
		t.Fatal(err)
	}
	now := server("/srv/new", "desk-2")
	ch := func(from action.Digest) change {
		return change{Server: "desk", Identity: now.Identity, Tools: []newPin{{tool: d, from: pinned{digest: d.Digest, identity: from, definition: d.Raw}}}}
	}
	start := server("/srv/new", "")
	for name, tt := range map[string]struct {
		st          State
		from        action.Digest
		want, lacks []string
	}{
		"from the file": {
			State{Pins: Pins{File: &pins.File{Servers: map[string]pins.Server{"desk": old}}}, Starts: map[string]pins.Server{"desk": start}}, old.Identity,
			[]string{"another server: dir", `- "/srv/old"`, `+ "/srv/new"`, "another server: name", `- "desk"`, `+ "desk-2"`}, []string{"another server: command", "not on record"},
		},
		"from a pin made at run time": {
			State{Pins: Pins{FirstUse: true}, Starts: map[string]pins.Server{"desk": start}}, old.Identity,
			[]string{"not on record", `"/srv/new"`, `"desk-2"`, "desk-mcp", "DESK_TOKEN"}, []string{"/srv/old"},
		},
		"from a pin made over the file's": {
			State{Pins: Pins{File: &pins.File{Servers: map[string]pins.Server{"desk": old}}}, Starts: map[string]pins.Server{"desk": start}}, action.Sum("a third"),
			[]string{"not on record", `"/srv/new"`}, []string{"/srv/old"},
		},
		"from who knows where": {State{}, old.Identity, []string{"it calls itself now: desk-2 1"}, []string{"not on record"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, v := ch(tt.from).view(&tt.st, Info{Name: "desk-2", Version: "1"})
			for _, want := range tt.want {
				if !strings.Contains(v.Text, want) {
					t.Errorf("lacks %s:\n%s", want, v.Text)
				}
			}
			for _, no := range append(tt.lacks, "hunter2", "a-long-secret") {
				if strings.Contains(v.Text, no) {
					t.Errorf("has %s:\n%s", no, v.Text)
				}
			}
		})
	}
}
