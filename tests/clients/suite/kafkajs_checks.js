// Checks of a broker with kafkajs: `node kafkajs_checks.js HOST:PORT [NAME...]` prints "passed NAME" or "failed NAME: why".
const assert = require('node:assert/strict')
const { Kafka, CompressionTypes, logLevel } = require('kafkajs')

const kafka = new Kafka({ clientId: 'checks', brokers: [process.argv[2]], logLevel: logLevel.NOTHING })
const admin = kafka.admin()
const WAIT_MS = 60000

const sleep = ms => new Promise(done => setTimeout(done, ms))

async function eventually(holds) {
  const until = Date.now() + WAIT_MS
  while (!(await holds())) {
    assert(Date.now() < until, 'not in time')
    await sleep(50)
  }
}

async function produce(topic, messages, options = {}) {
  const { compression, ...rest } = options
  const producer = kafka.producer(rest)
  await producer.connect()
  const result = await producer.send({ topic, messages, compression })
  await producer.disconnect()
  return result
}

// Consumes as a member of a group until there are `count` messages, and returns them.
async function consume(topic, groupId, count, options = {}) {
  const found = []
  const consumer = kafka.consumer({ groupId, sessionTimeout: 10000, heartbeatInterval: 500, maxWaitTimeInMs: 100, ...options })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ partition, message }) => {
      found.push({ partition, ...message })
    },
  })
  await eventually(() => found.length >= count)
  await consumer.disconnect()
  assert.equal(found.length, count)
  return found
}

const create = (topic, numPartitions = 1) => admin.createTopics({ topics: [{ topic, numPartitions }] })

const checks = {
  async topics_are_created_described_grown_and_deleted(name) {
    assert.equal(await create(name, 2), true)
    assert.equal(await create(name, 2), false)
    await admin.createPartitions({ topicPartitions: [{ topic: name, count: 4 }] })
    await eventually(async () => (await admin.fetchTopicMetadata({ topics: [name] })).topics[0].partitions.length === 4)
    assert((await admin.listTopics()).includes(name))
    await admin.deleteTopics({ topics: [name] })
    await eventually(async () => !(await admin.listTopics()).includes(name))
  },

  async records_keep_keys_values_headers_and_order(name) {
    await create(name)
    const messages = [...Array(100).keys()].map(n => ({ key: `k${n}`, value: `v${n}`, headers: { n: `${n}` } }))
    const [result] = await produce(name, messages)
    assert.equal(result.errorCode, 0)
    const found = await consume(name, name, 100)
    assert.deepEqual(found.map(each => each.offset), messages.map((_, n) => `${n}`))
    assert.deepEqual(found.map(each => each.value.toString()), messages.map(each => each.value))
    assert.equal(found[7].headers.n.toString(), '7')
  },

  async null_values_arrive(name) {
    await create(name)
    await produce(name, [{ key: 'deleted', value: null }])
    const [found] = await consume(name, name, 1)
    assert.equal(found.value, null)
  },

  async gzip_arrives(name) {
    await create(name)
    await produce(name, [...Array(50).keys()].map(n => ({ value: `value ${n} `.repeat(50) })), { compression: CompressionTypes.GZIP })
    assert.equal((await consume(name, name, 50))[49].value.toString(), 'value 49 '.repeat(50))
  },

  async an_idempotent_producer_writes_once(name) {
    await create(name)
    await produce(name, [...Array(200).keys()].map(n => ({ value: `${n}` })), { idempotent: true, maxInFlightRequests: 1 })
    assert.deepEqual((await consume(name, name, 200)).map(each => each.value.toString()), [...Array(200).keys()].map(String))
  },

  async members_share_partitions(name) {
    await create(name, 4)
    const owned = new Map()
    const members = []
    for (const which of ['a', 'b']) {
      const member = kafka.consumer({ groupId: name, sessionTimeout: 10000, rebalanceTimeout: 10000, heartbeatInterval: 300, maxWaitTimeInMs: 100 })
      member.on(member.events.GROUP_JOIN, ({ payload }) => owned.set(which, payload.memberAssignment[name] || []))
      await member.connect()
      await member.subscribe({ topics: [name] })
      await member.run({ eachMessage: async () => {} })
      members.push(member)
    }
    await eventually(() => ['a', 'b'].every(each => owned.has(each) && owned.get(each).length === 2))
    assert.deepEqual([...owned.get('a'), ...owned.get('b')].sort(), [0, 1, 2, 3])
    const { groups: [described] } = await admin.describeGroups([name])
    assert.equal(described.state, 'Stable')
    assert.equal(described.members.length, 2)
    await members[0].disconnect()
    await eventually(() => owned.get('b').length === 4)
    await members[1].disconnect()
  },

  async a_group_resumes_and_is_reset_and_deleted(name) {
    await create(name)
    await produce(name, [...Array(10).keys()].map(n => ({ value: `${n}` })))
    await consume(name, name, 10)
    const committed = async () => (await admin.fetchOffsets({ groupId: name, topics: [name] }))[0].partitions[0].offset
    assert.equal(await committed(), '10')
    await admin.setOffsets({ groupId: name, topic: name, partitions: [{ partition: 0, offset: '7' }] })
    assert.equal(await committed(), '7')
    assert.deepEqual((await consume(name, name, 3)).map(each => each.offset), ['7', '8', '9'])
    assert((await admin.listGroups()).groups.some(each => each.groupId === name))
    await admin.deleteGroups([name])
    assert(!(await admin.listGroups()).groups.some(each => each.groupId === name))
  },

  async transactions_commit_and_abort(name) {
    await create(name)
    const producer = kafka.producer({ transactionalId: name, idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    for (let n = 0; n < 6; n++) {
      const transaction = await producer.transaction()
      await transaction.send({ topic: name, messages: [{ value: `${n}` }] })
      await (n % 2 ? transaction.abort() : transaction.commit())
    }
    await producer.disconnect()
    const found = await consume(name, `${name}-group`, 3)
    assert.deepEqual(found.map(each => each.value.toString()), ['0', '2', '4'])
  },

  async offsets_are_committed_in_a_transaction(name) {
    await create(name)
    const producer = kafka.producer({ transactionalId: name, idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    const send = async (offset, end) => {
      const transaction = await producer.transaction()
      await transaction.send({ topic: name, messages: [{ value: offset }] })
      const topics = [{ topic: name, partitions: [{ partition: 0, offset }] }]
      await transaction.sendOffsets({ consumerGroupId: name, topics })
      await transaction[end]()
    }
    const committed = async () => (await admin.fetchOffsets({ groupId: name, topics: [name] }))[0].partitions[0].offset
    await send('5', 'commit')
    await eventually(async () => (await committed()) === '5')
    await send('8', 'abort')
    assert.equal(await committed(), '5')
    await producer.disconnect()
  },

  async offsets_and_records_are_administered(name) {
    await create(name)
    const t0 = 1700000000000
    await produce(name, [...Array(10).keys()].map(n => ({ value: `${n}`, timestamp: `${t0 + n}` })))
    assert.deepEqual(await admin.fetchTopicOffsets(name), [{ partition: 0, offset: '10', high: '10', low: '0' }])
    assert.equal((await admin.fetchTopicOffsetsByTimestamp(name, t0 + 4))[0].offset, '4')
    await admin.deleteTopicRecords({ topic: name, partitions: [{ partition: 0, offset: '6' }] })
    assert.equal((await admin.fetchTopicOffsets(name))[0].low, '6')
  },

  async configurations_are_altered(name) {
    await create(name)
    const resource = { type: 2, name }
    await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '123456' }] }] })
    const read = async () => (await admin.describeConfigs({ resources: [{ ...resource, configNames: ['retention.ms'] }] })).resources[0].configEntries
    await eventually(async () => (await read())[0].configValue === '123456')
    assert.equal((await read()).length, 1)
  },

  async the_cluster_is_described(name) {
    const cluster = await admin.describeCluster()
    assert.equal(cluster.brokers.length, 1)
    assert.equal(cluster.controller, cluster.brokers[0].nodeId)
    assert(cluster.clusterId)
  },
}

async function main() {
  const wanted = process.argv.slice(3)
  await admin.connect()
  let number = 0
  for (const [name, check] of Object.entries(checks)) {
    number += 1
    if (wanted.length && !wanted.includes(name)) continue
    try {
      await Promise.race([check(`js-${number}`), sleep(2 * WAIT_MS).then(() => assert.fail('too slow'))])
      console.log(`passed ${name}`)
    } catch (error) {
      console.log(`failed ${name}: ${error.stack}`)
    }
  }
  await admin.disconnect()
  process.exit(0) // clients of failed checks are still connected
}

main()
