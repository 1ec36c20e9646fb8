// Stands in for external-health-monitor-controller v0.18, whose module cannot be had from the Go module proxy: it takes
// that program's options, lists volumes through the CSI socket, and writes the events that it writes on claims. It is
// not that program: what it shows is that the listing serves such a client and that conditions reach claims as events,
// not how the real one behaves.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
)

type monitor struct {
	kube     kubernetes.Interface
	volumes  csi.ControllerClient
	driver   string
	events   record.EventRecorder
	abnormal map[string]bool
}

// pass lists all volumes once. A failed listing says nothing of any volume.
func (m *monitor) pass(ctx context.Context) error {
	claims := map[string]*corev1.ObjectReference{}
	persistent, err := m.kube.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, volume := range persistent.Items {
		if volume.Spec.CSI != nil && volume.Spec.CSI.Driver == m.driver && volume.Status.Phase == corev1.VolumeBound {
			claims[volume.Spec.CSI.VolumeHandle] = volume.Spec.ClaimRef
		}
	}
	for token := ""; ; {
		page, err := m.volumes.ListVolumes(ctx, &csi.ListVolumesRequest{StartingToken: token})
		if err != nil {
			return err
		}
		for _, entry := range page.Entries {
			id := entry.Volume.VolumeId
			claim := claims[id]
			if claim == nil {
				continue
			}
			claim.Kind, claim.APIVersion = "PersistentVolumeClaim", "v1"
			condition := entry.GetStatus().GetVolumeCondition()
			if condition.GetAbnormal() {
				m.events.Event(claim, corev1.EventTypeWarning, "VolumeConditionAbnormal", condition.Message)
			} else if m.abnormal[id] {
				m.events.Event(claim, corev1.EventTypeNormal, "VolumeConditionNormal", "The Volume returns to the healthy state")
			}
			m.abnormal[id] = condition.GetAbnormal()
		}
		if token = page.NextToken; token == "" {
			return nil
		}
	}
}

func main() {
	socket := flag.String("csi-address", "", "")
	interval := flag.Duration("list-volumes-interval", 5*time.Minute, "")
	timeout := flag.Duration("timeout", 15*time.Second, "")
	address := flag.String("http-endpoint", "", "")
	namespace := flag.String("leader-election-namespace", "", "")
	flag.Bool("leader-election", false, "")
	flag.Bool("enable-node-watcher", false, "")
	flag.Parse()
	ctx := context.Background()

	connection, err := grpc.NewClient("unix://"+*socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	info, err := csi.NewIdentityClient(connection).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		log.Fatal(err)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	kube := kubernetes.NewForConfigOrDie(config)
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typed.EventSinkImpl{Interface: kube.CoreV1().Events("")})
	source := corev1.EventSource{Component: "health-monitor-stand-in"}
	m := &monitor{
		kube: kube, volumes: csi.NewControllerClient(connection), driver: info.Name,
		events: broadcaster.NewRecorder(scheme.Scheme, source), abnormal: map[string]bool{},
	}
	election := leaderelection.NewLeaderHealthzAdaptor(20 * time.Second)
	http.HandleFunc("/healthz/leader-election", func(w http.ResponseWriter, r *http.Request) {
		if err := election.Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	go func() { log.Fatal(http.ListenAndServe(*address, nil)) }()

	host, _ := os.Hostname()
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, *namespace, "external-health-monitor-leader-"+info.Name,
		kube.CoreV1(), kube.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: host})
	if err != nil {
		log.Fatal(err)
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 5 * time.Second,
		WatchDog: election,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				for ; ; time.Sleep(*interval) {
					bounded, cancel := context.WithTimeout(ctx, *timeout)
					if err := m.pass(bounded); err != nil {
						log.Print(err)
					}
					cancel()
				}
			},
			OnStoppedLeading: func() { log.Fatal("no longer the leader") },
		},
	})
}
