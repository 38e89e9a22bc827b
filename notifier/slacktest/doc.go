// Package slacktest is a strict stand-in for Slack, for tests only: it must
// never be linked into a binary.
//
// It speaks real HTTP on a loopback port and shares no code with the client
// library that is tested against it. Where Slack refuses something, it
// refuses it with Slack's error: tokens and scopes, Block Kit limits with
// JSON pointers, unknown blocks, duplicate ids, unknown people in mentions,
// rich text replaced by plainer blocks, texts and metadata that are too long.
// Where Slack's rule isn't documented it takes the stricter reading, so that
// what passes here should pass there; it is no proof of that.
//
// A test sets the scene (AddUser, AddUserGroup, AddChannel), points the
// notifier at URL, points the fake at the webhook (SetInteractions), and then
// plays a person: Click finds a button on a stored message, builds the payload
// that Slack would send, signs and posts it, and says what that person would
// see. Faults (FailNext, FailAlways, Down) play a bad day. Messages, Ephemerals
// and the Wait functions tell what happened; the Wait functions wait on a
// condition, they don't poll.
//
// All methods are safe for concurrent use. The exported fields of Slack are
// read by its requests: change them before the first one only. Values handed
// out (messages, versions, blocks) are shared and must not be changed.
package slacktest
