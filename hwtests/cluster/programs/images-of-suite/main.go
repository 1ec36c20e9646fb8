// Prints the names of all images that this version's end-to-end tests may ask for.
package main

import (
	"fmt"

	"k8s.io/kubernetes/test/utils/image"
)

func main() {
	for _, config := range image.GetImageConfigs() {
		fmt.Println(config.GetE2EImage())
	}
}
