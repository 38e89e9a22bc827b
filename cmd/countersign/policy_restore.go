package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/countersign-mcp/countersign/cmd/countersign/internal/archive"
	"github.com/countersign-mcp/countersign/cmd/countersign/internal/config"
	"github.com/countersign-mcp/countersign/server/policy"
)

type policyRestoreCmd struct {
	JSON   bool   `help:"Print JSON."`
	Digest string `arg:"" optional:"" name:"DIGEST" help:"The beginning of a kept policy's digest. Without it, what is kept is listed."`
}

// Help says what happens to the file that is there.
func (policyRestoreCmd) Help() string {
	return "Each policy that a gate of this data_dir has loaded is kept there, the newest 50. " +
		"The file that is replaced stays beside it as FILE.replaced, and the one before it as FILE.replaced-DIGEST. A running gate takes the policy over at SIGHUP; its ledger says so."
}

// Run lists what is kept, or puts one of them into the policy file.
func (c policyRestoreCmd) Run(term terminal, common *common) error {
	cfg, err := config.Load(common.Config)
	if err != nil {
		return err
	}
	if c.Digest == "" {
		return c.list(term, cfg)
	}
	return c.restore(term, cfg)
}

// keptPolicy is one line of the list.
type keptPolicy struct {
	Digest  string    `json:"digest"`
	At      time.Time `json:"loaded"`
	Current bool      `json:"current"` // it is what the policy file holds
}

func (c policyRestoreCmd) list(term terminal, cfg *config.Config) error {
	all, err := archive.List(cfg.DataPath())
	if err != nil {
		return err
	}
	now := ""
	if b, err := os.ReadFile(cfg.PolicyPath()); err == nil { // one that can't be read is none of these
		now = policy.DigestOf(b).Hex()
	}
	out := []keptPolicy{}
	for _, k := range all {
		out = append(out, keptPolicy{k.Digest, k.At.UTC().Truncate(time.Second), k.Digest == now})
	}
	if c.JSON {
		enc := json.NewEncoder(term.out)
		enc.SetIndent("", "  ")
		return enc.Encode(out)
	}
	if len(out) == 0 {
		_, err := fmt.Fprintf(term.out, "No policy is kept in %s yet; a gate keeps each one that it loads.\n", cfg.DataPath())
		return err
	}
	for _, k := range out {
		note := ""
		if k.Current {
			note = "  in " + cfg.PolicyPath()
		}
		if _, err := fmt.Fprintf(term.out, "%s  loaded %s%s\n", k.Digest[:16], k.At.Format(time.RFC3339), note); err != nil {
			return err
		}
	}
	return nil
}

func (c policyRestoreCmd) restore(term terminal, cfg *config.Config) error {
	kept, err := archive.Find(cfg.DataPath(), c.Digest)
	if err != nil {
		return err
	}
	b, err := kept.Read()
	if err != nil {
		return err
	}
	if _, err := policy.Parse(kept.Digest[:16], b); err != nil {
		return fmt.Errorf("the kept policy does not load in this version, so it is not put back:\n%w", err)
	}
	replaced, err := putBack(cfg.PolicyPath(), b)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(term.out).Encode(map[string]string{"digest": kept.Digest, "policy": cfg.PolicyPath(), "replaced": replaced})
	}
	return sayRestored(term.out, cfg.PolicyPath(), kept.Digest, replaced)
}

func sayRestored(w io.Writer, path, digest, replaced string) error {
	was := ""
	if replaced != "" {
		was = fmt.Sprintf(" What was there is now %s.", replaced)
	}
	_, err := fmt.Fprintf(w, "%s is the policy %s again.%s\nA running gate still has the one it loaded: send it SIGHUP, and every other gate of this Redis too.\n",
		path, digest[:16], was)
	return err
}

// putBack writes the policy file, and keeps the one that was there. Behind a
// symbolic link it is the file that is meant.
func putBack(path string, b []byte) (replaced string, err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	mode := fs.FileMode(0o600)
	info, err := os.Stat(path)
	switch {
	case err == nil:
		old, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("reading the policy that is there: %w", err)
		}
		if bytes.Equal(old, b) {
			return "", nil
		}
		mode, replaced = info.Mode().Perm()&^0o022, path+".replaced"
		if err := setAside(replaced, old); err != nil {
			return "", cantWrite(path, err)
		}
		if err := archive.Write(replaced, old, mode, info); err != nil {
			return "", cantWrite(path, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("reading the policy that is there: %w", err)
	}
	if err := archive.Write(path, b, mode, info); err != nil {
		return "", cantWrite(path, err)
	}
	return replaced, nil
}

// setAside gives what an earlier restore kept a name of its own: it may be the only
// copy. Where it is what is to be kept now, it stays.
func setAside(kept string, now []byte) error {
	was, err := os.ReadFile(kept)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case bytes.Equal(was, now):
		return nil
	}
	return os.Rename(kept, kept+"-"+policy.DigestOf(was).Hex()[:16])
}

func cantWrite(path string, err error) error {
	return fmt.Errorf("%s can't be written: %w\nWhere it is mounted read-only, as a config map is, put the policy back at its source", path, err)
}
