package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/countersign-mcp/countersign/approvals/keys"
)

type keygenCmd struct{}

// Run prints a key and nothing else, so that it can go straight into a file.
func (keygenCmd) Run(term terminal) error {
	_, err := fmt.Fprintln(term.out, keys.NewSecret().Reveal())
	return err
}

type tokenCmd struct {
	New tokenNewCmd `cmd:"" help:"Make a bearer token. It is shown once; the configuration holds its SHA-256."`
}

type tokenNewCmd struct {
	JSON bool `help:"Print JSON."`
}

// Run prints the token and the digest that goes into the configuration.
func (c tokenNewCmd) Run(term terminal) error {
	token := "cst_" + rand.Text() + rand.Text()
	sum := sha256.Sum256([]byte(token))
	digest := hex.EncodeToString(sum[:])
	if c.JSON {
		return json.NewEncoder(term.out).Encode(map[string]string{"token": token, "sha256": digest})
	}
	_, err := fmt.Fprintf(term.out, "token:  %s\nsha256: %s\n\nGive the token to the caller. Put the sha256 under mcp.auth.tokens or admin.tokens.\n", token, digest)
	return err
}
