package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/countersign-mcp/countersign/approvals/ledger"
)

type ledgerCmd struct {
	Verify ledgerVerifyCmd `cmd:"" help:"Check that no line of a ledger file was changed, removed or put in. Needs no configuration and no keys."`
}

type ledgerVerifyCmd struct {
	JSON  bool     `help:"Print JSON, one line a file."`
	Files []string `arg:"" name:"FILE" help:"Ledger files (.jsonl), or directories of them." type:"path"`
}

// Help lists the exit codes.
func (ledgerVerifyCmd) Help() string {
	return "It can't see that whole lines were cut from the end: compare the number of records or the head with a copy. Exit code: 0 all files hold, 1 tampered with, 3 a torn last line (a crash), 4 usage."
}

// Run prints what was found in each file.
func (c ledgerVerifyCmd) Run(term terminal) error {
	files, err := ledgerFiles(c.Files)
	if err != nil {
		return usage(term, err)
	}
	reports, err := ledger.VerifyFiles(files...)
	if err != nil {
		return usage(term, err)
	}
	for _, r := range reports {
		if err := c.print(term, r); err != nil {
			return err
		}
	}
	if code := ledger.ExitCode(reports); code != exitOK {
		return exitError(code)
	}
	return nil
}

func (c ledgerVerifyCmd) print(term terminal, r ledger.Report) error {
	if c.JSON {
		return json.NewEncoder(term.out).Encode(r)
	}
	_, err := fmt.Fprintln(term.out, r)
	return err
}

// ledgerFiles replaces each directory by the ledger files in it.
func ledgerFiles(paths []string) ([]string, error) {
	var out []string
	for _, p := range paths {
		info, err := os.Stat(p)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("there is no %s; name ledger files, or the ledger.dir of a gate", p)
		}
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			out = append(out, p)
			continue
		}
		in, err := ledger.Files(p)
		if err != nil {
			return nil, err
		}
		if len(in) == 0 {
			return nil, fmt.Errorf("there is no ledger file in %s", p)
		}
		out = append(out, in...)
	}
	return out, nil
}
