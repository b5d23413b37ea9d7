// SPDX-License-Identifier: Apache-2.0

// Command hello is the smallest program that an image can hold.
package main

func main() { println("hello") }
