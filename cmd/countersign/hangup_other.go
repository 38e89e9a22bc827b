//go:build !unix

package main

import "os"

func ignoreHangup() {}

func hangups() (<-chan os.Signal, func()) { return nil, func() {} }
