// Checks of a broker with sarama: `checks HOST:PORT [NAME...]` prints "passed NAME" or "failed NAME: why".
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const wait = 60 * time.Second

var brokers []string

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V4_1_0_0
	c.Producer.Return.Successes = true
	c.Consumer.Return.Errors = true
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	c.Consumer.Group.Session.Timeout = 10 * time.Second
	c.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	return c
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func same(got, want any) {
	if g, w := fmt.Sprintf("%v", got), fmt.Sprintf("%v", want); g != w {
		panic(fmt.Sprintf("got %.300s, want %.300s", g, w))
	}
}

func eventually(holds func() bool) {
	for until := time.Now().Add(wait); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			panic("not in time")
		}
	}
}

func create(name string, partitions int32) sarama.ClusterAdmin {
	admin := must(sarama.NewClusterAdmin(brokers, config()))
	check(admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false))
	return admin
}

func numbers(count int) []string {
	found := make([]string, count)
	for n := range found {
		found[n] = fmt.Sprint(n)
	}
	return found
}

func produce(name string, c *sarama.Config, values []string) {
	producer := must(sarama.NewSyncProducer(brokers, c))
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, len(values))
	for n, value := range values {
		headers := []sarama.RecordHeader{{Key: []byte("n"), Value: []byte(value)}}
		messages[n] = &sarama.ProducerMessage{
			Topic: name, Key: sarama.StringEncoder("k" + value), Value: sarama.StringEncoder(value), Headers: headers,
		}
	}
	check(producer.SendMessages(messages))
}

// Returns the first `count` messages of a partition from an offset on.
func consume(name string, offset int64, count int, isolation sarama.IsolationLevel) []*sarama.ConsumerMessage {
	c := config()
	c.Consumer.IsolationLevel = isolation
	consumer := must(sarama.NewConsumer(brokers, c))
	defer consumer.Close()
	partition := must(consumer.ConsumePartition(name, 0, offset))
	defer partition.Close()
	var found []*sarama.ConsumerMessage
	for len(found) < count {
		select {
		case message := <-partition.Messages():
			found = append(found, message)
		case err := <-partition.Errors():
			panic(err)
		case <-time.After(wait):
			panic(fmt.Sprintf("%d messages of %d", len(found), count))
		}
	}
	return found
}

func values(messages []*sarama.ConsumerMessage) []string {
	found := make([]string, len(messages))
	for n, message := range messages {
		found[n] = string(message.Value)
	}
	return found
}

// A member of a group, its claims, and the values that it has read.
type member struct {
	sync.Mutex
	claims map[int32]bool
	read   []string
	group  sarama.ConsumerGroup
	stop   context.CancelFunc
	done   chan struct{}
}

func join(name string) *member {
	m := &member{group: must(sarama.NewConsumerGroup(brokers, name, config())), done: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go func() {
		for range m.group.Errors() {
		}
	}()
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			if m.group.Consume(ctx, []string{name}, m) != nil {
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
	return m
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.Lock()
	defer m.Unlock()
	m.claims = map[int32]bool{}
	for _, partitions := range session.Claims() {
		for _, partition := range partitions {
			m.claims[partition] = true
		}
	}
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			m.Lock()
			m.read = append(m.read, string(message.Value))
			m.Unlock()
			session.MarkMessage(message, "")
			session.Commit()
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *member) owns() int {
	m.Lock()
	defer m.Unlock()
	return len(m.claims)
}

func (m *member) count() int {
	m.Lock()
	defer m.Unlock()
	return len(m.read)
}

func (m *member) leave() {
	m.stop()
	<-m.done
	check(m.group.Close())
}

func transactional(name string) sarama.SyncProducer {
	c := config()
	c.Producer.Transaction.ID = name
	c.Producer.Idempotent = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Net.MaxOpenRequests = 1
	return must(sarama.NewSyncProducer(brokers, c))
}

var checks = map[string]func(string){
	"every_codec_arrives": func(name string) {
		create(name, 1).Close()
		codecs := []sarama.CompressionCodec{
			sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD,
		}
		var sent []string
		for _, codec := range codecs {
			c := config()
			c.Producer.Compression = codec
			text := strings.Repeat(codec.String()+" ", 100)
			produce(name, c, []string{text + "1", text + "2"})
			sent = append(sent, text+"1", text+"2")
		}
		found := consume(name, 0, len(sent), sarama.ReadUncommitted)
		same(values(found), sent)
		same(string(found[3].Key), "k"+sent[3])
		same(string(found[3].Headers[0].Value), sent[3])
		same(values(consume(name, 7, 3, sarama.ReadUncommitted)), sent[7:])
	},
	"an_idempotent_producer_writes_once": func(name string) {
		create(name, 1).Close()
		c := config()
		c.Producer.Idempotent = true
		c.Producer.RequiredAcks = sarama.WaitForAll
		c.Net.MaxOpenRequests = 1
		produce(name, c, numbers(500))
		same(values(consume(name, 0, 500, sarama.ReadUncommitted)), numbers(500))
	},
	"members_share_partitions_and_commit": func(name string) {
		admin := create(name, 4)
		defer admin.Close()
		a := join(name)
		eventually(func() bool { return a.owns() == 4 })
		b := join(name)
		eventually(func() bool { return a.owns() == 2 && b.owns() == 2 })
		produce(name, config(), numbers(100))
		eventually(func() bool { return a.count()+b.count() == 100 })
		groups := must(admin.DescribeConsumerGroups([]string{name}))
		same(groups[0].State, "Stable")
		same(len(groups[0].Members), 2)
		a.leave()
		eventually(func() bool { return b.owns() == 4 })
		b.leave()
		offsets := must(admin.ListConsumerGroupOffsets(name, map[string][]int32{name: {0, 1, 2, 3}}))
		total := int64(0)
		for _, block := range offsets.Blocks[name] {
			total += max(block.Offset, 0)
		}
		same(total, 100)
		check(admin.DeleteConsumerGroup(name))
		_, listed := must(admin.ListConsumerGroups())[name]
		same(listed, false)
	},
	"transactions_commit_and_abort": func(name string) {
		create(name, 1).Close()
		producer := transactional(name)
		for n := range 6 {
			check(producer.BeginTxn())
			_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: name, Value: sarama.StringEncoder(fmt.Sprint(n))})
			check(err)
			if n%2 == 0 {
				check(producer.CommitTxn())
			} else {
				check(producer.AbortTxn())
			}
		}
		check(producer.Close())
		same(values(consume(name, 0, 3, sarama.ReadCommitted)), []string{"0", "2", "4"})
		same(values(consume(name, 0, 6, sarama.ReadUncommitted)), numbers(6))
	},
	"offsets_are_committed_in_a_transaction": func(name string) {
		admin := create(name, 1)
		defer admin.Close()
		producer := transactional(name)
		committed := func() int64 {
			response := must(admin.ListConsumerGroupOffsets(name, map[string][]int32{name: {0}}))
			return response.GetBlock(name, 0).Offset
		}
		send := func(offset int64) {
			check(producer.BeginTxn())
			offsets := map[string][]*sarama.PartitionOffsetMetadata{name: {{Partition: 0, Offset: offset, LeaderEpoch: -1}}}
			check(producer.AddOffsetsToTxn(offsets, name))
		}
		send(5)
		check(producer.CommitTxn())
		eventually(func() bool { return committed() == 5 })
		send(8)
		check(producer.AbortTxn())
		same(committed(), 5)
		check(producer.Close())
	},
	"topics_configurations_and_records_are_administered": func(name string) {
		admin := create(name, 1)
		defer admin.Close()
		check(admin.CreatePartitions(name, 3, nil, false))
		eventually(func() bool { return len(must(admin.DescribeTopics([]string{name}))[0].Partitions) == 3 })
		value := "123456"
		check(admin.IncrementalAlterConfig(sarama.TopicResource, name, map[string]sarama.IncrementalAlterConfigsEntry{
			"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value},
		}, false))
		eventually(func() bool {
			resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: name, ConfigNames: []string{"retention.ms"}}
			return must(admin.DescribeConfig(resource))[0].Value == value
		})
		producer := must(sarama.NewSyncProducer(brokers, func() *sarama.Config {
			c := config()
			c.Producer.Partitioner = sarama.NewManualPartitioner
			return c
		}()))
		for range 10 {
			_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: name, Value: sarama.StringEncoder("x")})
			check(err)
		}
		check(producer.Close())
		check(admin.DeleteRecords(name, map[int32]int64{0: 6}))
		client := must(sarama.NewClient(brokers, config()))
		defer client.Close()
		same(must(client.GetOffset(name, 0, sarama.OffsetOldest)), 6)
		same(must(client.GetOffset(name, 0, sarama.OffsetNewest)), 10)
		check(admin.DeleteTopic(name))
		eventually(func() bool { _, there := must(admin.ListTopics())[name]; return !there })
	},
}

func run(name string, number int) (why any) {
	defer func() { why = recover() }()
	checks[name](fmt.Sprintf("sarama-%d", number))
	return nil
}

func main() {
	brokers = []string{os.Args[1]}
	names := os.Args[2:]
	if len(names) == 0 {
		for name := range checks {
			names = append(names, name)
		}
		sort.Strings(names)
	}
	for number, name := range names {
		if why := run(name, number); why != nil {
			fmt.Printf("failed %s: %v\n", name, why)
		} else {
			fmt.Printf("passed %s\n", name)
		}
	}
}
