//go:build !faultpoints

package fault

// Enabled tells whether this binary obeys fault points.
const Enabled = false

// Point does nothing in this build.
func Point(string) {}
