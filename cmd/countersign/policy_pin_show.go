package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/server/pins"
	"github.com/countersign-mcp/countersign/server/redact"
)

// pinReport is what was found, against what the file had.
type pinReport struct {
	path    string
	old     *pins.File
	fresh   bool // there was no file
	written bool
	found   []pinned
}

// kind is what became of one upstream's entry: added, changed or same.
func (r *pinReport) kind(p pinned) (string, pins.Changes) {
	old, had := r.old.Servers[p.name]
	if !had {
		return pins.Added, pins.Diff(pins.Server{}, p.server)
	}
	c := pins.Diff(old, p.server)
	if c.Empty() {
		return "same", c
	}
	return pins.Changed, c
}

// same tells whether the file had all of it.
func (r *pinReport) same() bool { return len(r.differing()) == 0 }

func (r *pinReport) differing() []string {
	var out []string
	for _, p := range r.found {
		if kind, _ := r.kind(p); kind != "same" {
			out = append(out, p.name)
		}
	}
	return out
}

// note prints what a person should know beside the result.
func (r *pinReport) note(w io.Writer, cfg *config.Config) {
	for _, p := range r.found {
		for _, n := range p.notes {
			fmt.Fprintf(w, "countersign: note: %s: %s.\n", p.name, n)
		}
	}
	for _, name := range r.old.Names() {
		if _, ok := cfg.Upstreams[name]; !ok {
			fmt.Fprintf(w, "countersign: note: %s has an entry for %s, which is no configured upstream; delete the entry if the server is gone for good.\n", r.path, redact.Visible(name))
		}
	}
}

func (r *pinReport) text(out io.Writer) error {
	var b bytes.Buffer
	for _, p := range r.found {
		kind, changes := r.kind(p)
		switch {
		case kind == "same":
			fmt.Fprintf(&b, "%s: %s, as in the file\n", p.name, tools(len(p.server.Tools)))
		case kind == pins.Added:
			fmt.Fprintf(&b, "%s: %s, not in the file before\n", p.name, tools(len(p.server.Tools)))
			about(&b, p.server)
		default:
			fmt.Fprintf(&b, "%s: changed\n", p.name)
		}
		if kind == pins.Added {
			changes.Identity, changes.About = nil, nil // that is what about said
		}
		for line := range strings.Lines(changes.Text()) {
			fmt.Fprintf(&b, "  %s", line)
		}
	}
	switch {
	case r.written:
		fmt.Fprintf(&b, "%s is written.\n", r.path)
	case r.same():
		fmt.Fprintf(&b, "%s has all of it.\n", r.path)
	default:
		fmt.Fprintf(&b, "Agree to this with: countersign policy pin %s\n", strings.Join(r.differing(), " "))
	}
	_, err := b.WriteTo(out)
	return err
}

func tools(n int) string {
	switch n {
	case 0:
		return "no tools"
	case 1:
		return "1 tool"
	}
	return fmt.Sprintf("%d tools", n)
}

// about prints what is on record of a server beside its tools.
func about(out io.Writer, s pins.Server) {
	shown := func(s string) string { return redact.Visible(s) }
	capabilities := "none declared"
	if s.Capabilities != nil {
		capabilities = shown(string(s.Capabilities))
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, row := range [][2]string{
		{"server", or(strings.TrimSpace(shown(s.Name+" "+s.Version)), "it doesn't name itself")},
		{"protocol", shown(s.Protocol)},
		{"transport", s.Transport},
		{"command", shown(strings.Join(s.Command, " "))},
		{"directory", or(shown(s.Dir), "the gate's own")},
		{"variables", or(strings.Join(s.Env, ", "), "none")},
		{"package", or(shown(s.Package.String()), "the command names none")},
		{"auth path", or(strings.Join(s.AuthPath, ", "), "none seen")},
		{"capabilities", capabilities},
		{"identity", s.Identity.Hex()},
	} {
		fmt.Fprintf(w, "  %s\t%s\n", row[0], row[1])
	}
	w.Flush() // into memory it can't fail
}

func (r *pinReport) json(out io.Writer) error {
	type part struct {
		Path   string          `json:"path"`
		Before json.RawMessage `json:"before,omitempty"`
		After  json.RawMessage `json:"after,omitempty"`
	}
	type tool struct {
		Name  string `json:"name"`
		Kind  string `json:"kind"`
		Parts []part `json:"parts"`
	}
	type server struct {
		Upstream string   `json:"upstream"`
		Kind     string   `json:"kind"`
		Identity string   `json:"identity"`
		Manifest string   `json:"manifest"`
		Tools    int      `json:"tools"`
		Notes    []string `json:"notes"`
		Changes  struct {
			Identity []part `json:"identity"`
			About    []part `json:"about"`
			Tools    []tool `json:"tools"`
		} `json:"changes"`
	}
	parts := func(in []pins.Part) []part {
		out := []part{}
		for _, p := range in {
			out = append(out, part(p))
		}
		return out
	}
	servers := []server{}
	for _, p := range r.found {
		kind, changes := r.kind(p)
		s := server{
			Upstream: p.name, Kind: kind, Identity: p.server.Identity.Hex(), Manifest: pins.Manifest(p.server.Tools).Hex(),
			Tools: len(p.server.Tools), Notes: append([]string{}, p.notes...),
		}
		s.Changes.Identity, s.Changes.About, s.Changes.Tools = parts(changes.Identity), parts(changes.About), []tool{}
		for _, t := range changes.Tools {
			s.Changes.Tools = append(s.Changes.Tools, tool{t.Name, t.Kind, parts(t.Parts)})
		}
		servers = append(servers, s)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(struct {
		File    string   `json:"file"`
		Written bool     `json:"written"`
		Same    bool     `json:"same"`
		Servers []server `json:"servers"`
	}{r.path, r.written, r.same(), servers})
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	_, err = out.Write(pins.Plain(b.Bytes()))
	return err
}
