// Package approvals holds the words that every part of Countersign shares:
// what an approval is ([Ticket]), the states it goes through ([State]), who may
// decide ([Eligible]) and what can be refused ([Conflict]). It calls nobody.
package approvals
