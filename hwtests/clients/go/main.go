// Dials a socket of Drivebay's the way Go programs do, and ends with an error unless every call is answered.
//
//	dial registration SOCKET
//	dial csi SOCKET [node] [controller]
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	deadline = 30 * time.Second
	// On one connection, one after the other: the encoder's dynamic table is used and overflows.
	inTurn = 300
	// On one connection.
	atOnce = 64
	// More than the 4 KiB of the dynamic table.
	largeMetadata = 6000
)

type way struct {
	name string
	dial func(socket string) (*grpc.ClientConn, error)
}

func unix(ctx context.Context, path string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", path)
}

func options(more ...grpc.DialOption) []grpc.DialOption {
	return append(more, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

var ways = []way{
	// pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go; :authority is the path.
	{"the kubelet's plugin watcher", func(socket string) (*grpc.ClientConn, error) {
		return grpc.Dial(socket, options(grpc.WithContextDialer(unix))...)
	}},
	// pkg/volume/csi/csi_client.go
	{"the kubelet's CSI client", func(socket string) (*grpc.ClientConn, error) {
		return grpc.Dial(socket, options(grpc.WithContextDialer(unix), grpc.WithAuthority("localhost"))...)
	}},
	{"unix:///", func(socket string) (*grpc.ClientConn, error) {
		return grpc.NewClient("unix://"+socket, options()...)
	}},
	{"passthrough:///", func(socket string) (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///"+socket, options(grpc.WithContextDialer(unix))...)
	}},
	{"an authority that is no host", func(socket string) (*grpc.ClientConn, error) {
		return grpc.NewClient("unix://"+socket, options(grpc.WithAuthority("/no host/%zz"))...)
	}},
}

func main() {
	if len(os.Args) < 3 {
		fail(errors.New("usage: dial registration|csi SOCKET [SERVICE...]"))
	}
	kind, socket, services := os.Args[1], os.Args[2], os.Args[3:]
	for _, way := range ways {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		connection, err := way.dial(socket)
		if err == nil {
			switch kind {
			case "registration":
				err = register(ctx, connection)
			case "csi":
				err = serveCSI(ctx, connection, services)
			default:
				err = fmt.Errorf("unknown kind of socket %q", kind)
			}
			connection.Close()
		}
		cancel()
		if err != nil {
			fail(fmt.Errorf("%s: %s: %w", socket, way.name, err))
		}
		fmt.Printf("ok %s\n", way.name)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func register(ctx context.Context, connection *grpc.ClientConn) error {
	client := registration.NewRegistrationClient(connection)
	for range inTurn {
		info, err := client.GetInfo(ctx, &registration.InfoRequest{})
		if err != nil {
			return fmt.Errorf("GetInfo: %w", err)
		}
		if info.Type != registration.CSIPlugin || info.Name == "" || info.Endpoint == "" {
			return fmt.Errorf("GetInfo answers %v", info)
		}
	}
	return nil
}

func serveCSI(ctx context.Context, connection *grpc.ClientConn, services []string) error {
	identity := csi.NewIdentityClient(connection)
	for n := range inTurn {
		// New values push older ones out of the dynamic table.
		ctx := metadata.AppendToOutgoingContext(ctx, "x-number", fmt.Sprint(n), "x-filler", strings.Repeat("f", n))
		info, err := identity.GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
		if err != nil {
			return fmt.Errorf("GetPluginInfo %d: %w", n, err)
		}
		if info.Name == "" {
			return fmt.Errorf("GetPluginInfo answers %v", info)
		}
	}
	if err := atTheSameTime(ctx, identity); err != nil {
		return err
	}
	if slices.Contains(services, "node") {
		if _, err := csi.NewNodeClient(connection).NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{}); err != nil {
			return fmt.Errorf("NodeGetCapabilities: %w", err)
		}
	}
	if slices.Contains(services, "controller") {
		client := csi.NewControllerClient(connection)
		if _, err := client.ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{}); err != nil {
			return fmt.Errorf("ControllerGetCapabilities: %w", err)
		}
	}
	return nil
}

func atTheSameTime(ctx context.Context, identity csi.IdentityClient) error {
	answers := make(chan error)
	for n := range atOnce {
		go func() {
			large := strings.Repeat("l", largeMetadata+n)
			_, err := identity.Probe(metadata.AppendToOutgoingContext(ctx, "x-large", large), &csi.ProbeRequest{})
			answers <- err
		}()
	}
	var failed error
	for range atOnce {
		if err := <-answers; err != nil {
			failed = fmt.Errorf("Probe, %d at once: %w", atOnce, err)
		}
	}
	return failed
}
