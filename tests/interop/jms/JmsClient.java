import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import javax.jms.*;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQMessageProducer;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.command.ActiveMQDestination;

/** JMS by lines: each line on stdin is a command with its arguments, all but the command in Base64; each answer is a
 * line, too. Objects have names, which the tests choose. */
public class JmsClient {
    static final Map<String, Object> known = new HashMap<>();
    static final Map<String, BlockingQueue<Message>> heard = new HashMap<>();
    static final Map<String, List<String>> faults = new HashMap<>();
    static final Map<String, Message> last = new HashMap<>();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ", -1);
            String[] said = new String[words.length - 1];
            for (int i = 1; i < words.length; i++) {
                said[i - 1] = words[i].equals("-") ? null : text(words[i]);
            }
            try {
                out.println("ok " + encode(carryOut(words[0], said)));
            } catch (Throwable fault) {
                out.println("fault " + encode(fault.getClass().getName() + "\n" + fault.getMessage()));
            }
        }
        System.exit(0);
    }

    static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }

    static String encode(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }

    static Destination destination(String name) {
        Object made = known.get(name);
        if (made instanceof Destination) {
            return (Destination) made;
        }
        return ActiveMQDestination.createDestination(name, ActiveMQDestination.QUEUE_TYPE);
    }

    static String carryOut(String command, String[] said) throws Exception {
        switch (command) {
            case "connect": return connect(said);
            case "session": {
                int mode = Integer.parseInt(said[2]);
                known.put(said[1], ((Connection) known.get(said[0])).createSession(mode == 0, mode));
                return "";
            }
            case "producer": {
                ActiveMQMessageProducer producer = (ActiveMQMessageProducer) ((Session) known.get(said[0]))
                    .createProducer(said[2] == null ? null : destination(said[2]));
                known.put(said[1], producer);
                return "";
            }
            case "consumer": {
                Session session = (Session) known.get(said[0]);
                known.put(said[1], session.createConsumer(destination(said[2]), said[3], said[4] != null));
                return "";
            }
            case "durable": {
                Session session = (Session) known.get(said[0]);
                Topic topic = (Topic) destination(said[2]);
                known.put(said[1], session.createDurableSubscriber(topic, said[3], said[4], said[5] != null));
                return "";
            }
            case "unsubscribe": ((Session) known.get(said[0])).unsubscribe(said[1]); return "";
            case "listen": {
                String consumer = said[0];
                boolean held = said.length > 2; // each message until somebody asks for it, or closes the consumer
                BlockingQueue<Message> queue = held ? new SynchronousQueue<>() : new LinkedBlockingQueue<>();
                heard.put(consumer, queue);
                String failing = said[1];
                ((MessageConsumer) known.get(consumer)).setMessageListener(message -> {
                    try {
                        while (!queue.offer(message, 50, TimeUnit.MILLISECONDS) && known.containsKey(consumer)) {
                        }
                    } catch (InterruptedException end) {
                        throw new RuntimeException(end);
                    }
                    if (failing != null) {
                        throw new RuntimeException(failing);
                    }
                });
                return "";
            }
            case "heard": {
                Message message = heard.get(said[0]).poll(Long.parseLong(said[1]), TimeUnit.MILLISECONDS);
                return shown(said[0], message);
            }
            case "receive": {
                long wait = Long.parseLong(said[1]);
                MessageConsumer consumer = (MessageConsumer) known.get(said[0]);
                return shown(said[0], wait == 0 ? consumer.receiveNoWait() : consumer.receive(wait));
            }
            case "drain": return drain((MessageConsumer) known.get(said[0]), Integer.parseInt(said[1]), said[2] != null);
            case "send": return send(said);
            case "flood": return flood(said);
            case "acknowledge": last.get(said[0]).acknowledge(); return "";
            case "commit": ((Session) known.get(said[0])).commit(); return "";
            case "rollback": ((Session) known.get(said[0])).rollback(); return "";
            case "recover": ((Session) known.get(said[0])).recover(); return "";
            case "browse": {
                QueueBrowser browser = ((Session) known.get(said[0])).createBrowser((Queue) destination(said[1]), said[2]);
                List<String> seen = new ArrayList<>();
                for (Enumeration<?> some = browser.getEnumeration(); some.hasMoreElements(); ) {
                    seen.add(((TextMessage) some.nextElement()).getText());
                }
                browser.close();
                return String.join("\n", seen);
            }
            case "temporary": {
                Session session = (Session) known.get(said[0]);
                known.put(said[1], said[2].equals("queue") ? session.createTemporaryQueue() : session.createTemporaryTopic());
                return known.get(said[1]).toString();
            }
            case "delete": {
                Object made = known.get(said[0]);
                if (made instanceof TemporaryQueue) {
                    ((TemporaryQueue) made).delete();
                } else {
                    ((TemporaryTopic) made).delete();
                }
                return "";
            }
            case "close": {
                Object made = known.remove(said[0]);
                if (made instanceof Connection) {
                    ((Connection) made).close();
                } else if (made instanceof Session) {
                    ((Session) made).close();
                } else if (made instanceof MessageConsumer) {
                    ((MessageConsumer) made).close();
                } else {
                    ((MessageProducer) made).close();
                }
                return "";
            }
            case "start": ((Connection) known.get(said[0])).start(); return "";
            case "stop": ((Connection) known.get(said[0])).stop(); return "";
            case "faults": return String.join("\n", faults.get(said[0]));
            case "property": return String.valueOf(last.get(said[0]).getObjectProperty(said[1]));
            case "reply_to": known.put(said[1], last.get(said[0]).getJMSReplyTo()); return "";
            case "begin_xa": throw new UnsupportedOperationException();
        }
        throw new IllegalArgumentException(command);
    }

    static String connect(String[] said) throws Exception {
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(said[1]);
        factory.setTrustAllPackages(true);
        ActiveMQConnection connection = (ActiveMQConnection) factory.createConnection(said[2], said[3]);
        List<String> told = Collections.synchronizedList(new ArrayList<>());
        faults.put(said[0], told);
        connection.setExceptionListener(fault -> told.add(fault.getClass().getName() + ": " + fault.getMessage()));
        try {
            if (said[4] != null) {
                connection.setClientID(said[4]);
            }
            connection.start();
        } catch (Exception fault) {
            connection.close();
            throw fault;
        }
        known.put(said[0], connection);
        return connection.getClientID() == null ? "" : connection.getClientID();
    }

    /** producer, destination, kind, body, properties (name=type:value lines), mode, priority, lifetime, correlation,
     * type, reply address, disable ids; answers with the message's id. */
    static String send(String[] said) throws Exception {
        MessageProducer producer = (MessageProducer) known.get(said[0]);
        ActiveMQMessageProducer inner = (ActiveMQMessageProducer) producer;
        Session session = (Session) known.get(said[1]);
        Message message = message(session, said[3], said[4]);
        if (said[5] != null) {
            for (String line : said[5].split("\n")) {
                int equals = line.indexOf('='), colon = line.indexOf(':', equals);
                put(message, line.substring(0, equals), line.substring(equals + 1, colon), line.substring(colon + 1));
            }
        }
        message.setJMSCorrelationID(said[9]);
        message.setJMSType(said[10]);
        if (said[11] != null) {
            message.setJMSReplyTo(destination(said[11]));
        }
        int mode = Integer.parseInt(said[6]), priority = Integer.parseInt(said[7]);
        long lifetime = Long.parseLong(said[8]);
        if (said[2] == null) {
            producer.send(message, mode, priority, lifetime);
        } else {
            producer.send(destination(said[2]), message, mode, priority, lifetime);
        }
        return message.getJMSMessageID();
    }

    static void put(Message message, String name, String type, String value) throws Exception {
        switch (type) {
            case "boolean": message.setBooleanProperty(name, Boolean.parseBoolean(value)); return;
            case "byte": message.setByteProperty(name, Byte.parseByte(value)); return;
            case "short": message.setShortProperty(name, Short.parseShort(value)); return;
            case "int": message.setIntProperty(name, Integer.parseInt(value)); return;
            case "long": message.setLongProperty(name, Long.parseLong(value)); return;
            case "float": message.setFloatProperty(name, Float.parseFloat(value)); return;
            case "double": message.setDoubleProperty(name, Double.parseDouble(value)); return;
            default: message.setStringProperty(name, value);
        }
    }

    static Message message(Session session, String kind, String body) throws Exception {
        switch (kind) {
            case "text": return session.createTextMessage(body);
            case "bytes": {
                BytesMessage message = session.createBytesMessage();
                message.writeBytes(Base64.getDecoder().decode(body));
                return message;
            }
            case "map": {
                MapMessage message = session.createMapMessage();
                message.setString("text", body);
                message.setInt("int", 7);
                message.setDouble("double", 2.5);
                message.setBytes("bytes", new byte[] {1, 2, 3});
                return message;
            }
            case "stream": {
                StreamMessage message = session.createStreamMessage();
                message.writeString(body);
                message.writeLong(1L << 40);
                message.writeBoolean(true);
                return message;
            }
            case "object": {
                ArrayList<String> list = new ArrayList<>();
                list.add(body);
                return session.createObjectMessage(list);
            }
            default: return session.createMessage();
        }
    }

    static String flood(String[] said) throws Exception {
        MessageProducer producer = (MessageProducer) known.get(said[0]);
        Session session = (Session) known.get(said[1]);
        int count = Integer.parseInt(said[4]);
        producer.setDeliveryMode(Integer.parseInt(said[3]));
        String padding = said[5] == null ? "" : said[5];
        for (int i = 0; i < count; i++) {
            producer.send(destination(said[2]), session.createTextMessage(i + padding));
        }
        return "";
    }

    static String drain(MessageConsumer consumer, int count, boolean acknowledge) throws Exception {
        List<String> seen = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message message = consumer.receive(5000);
            if (message == null) {
                break;
            }
            seen.add(((TextMessage) message).getText());
            if (acknowledge) {
                message.acknowledge();
            }
        }
        return String.join("\n", seen);
    }

    static String shown(String consumer, Message message) throws Exception {
        if (message == null) {
            return "";
        }
        last.put(consumer, message);
        List<String> lines = new ArrayList<>();
        add(lines, "id", message.getJMSMessageID());
        add(lines, "destination", message.getJMSDestination());
        add(lines, "correlation", message.getJMSCorrelationID());
        add(lines, "type", message.getJMSType());
        add(lines, "reply_to", message.getJMSReplyTo());
        add(lines, "priority", message.getJMSPriority());
        add(lines, "mode", message.getJMSDeliveryMode());
        add(lines, "timestamp", message.getJMSTimestamp());
        add(lines, "expiration", message.getJMSExpiration());
        add(lines, "redelivered", message.getJMSRedelivered());
        add(lines, "deliveries", message.getObjectProperty("JMSXDeliveryCount"));
        for (Enumeration<?> names = message.getPropertyNames(); names.hasMoreElements(); ) {
            String name = (String) names.nextElement();
            Object value = message.getObjectProperty(name);
            String type = value == null ? "null" : value.getClass().getSimpleName();
            value = value instanceof byte[] ? Base64.getEncoder().encodeToString((byte[]) value) : value;
            add(lines, "property", name + "=" + type + ":" + value);
        }
        if (message instanceof TextMessage) {
            add(lines, "kind", "text");
            add(lines, "body", ((TextMessage) message).getText());
        } else if (message instanceof BytesMessage) {
            byte[] body = new byte[(int) ((BytesMessage) message).getBodyLength()];
            ((BytesMessage) message).readBytes(body);
            add(lines, "kind", "bytes");
            add(lines, "body", Base64.getEncoder().encodeToString(body));
        } else if (message instanceof MapMessage) {
            MapMessage map = (MapMessage) message;
            add(lines, "kind", "map");
            add(lines, "body", map.getString("text") + "|" + map.getInt("int") + "|" + map.getDouble("double") + "|"
                + map.getBytes("bytes").length);
        } else if (message instanceof StreamMessage) {
            StreamMessage stream = (StreamMessage) message;
            add(lines, "kind", "stream");
            add(lines, "body", stream.readString() + "|" + stream.readLong() + "|" + stream.readBoolean());
        } else if (message instanceof ObjectMessage) {
            add(lines, "kind", "object");
            add(lines, "body", ((ObjectMessage) message).getObject());
        } else {
            add(lines, "kind", "message");
        }
        return String.join("\n", lines);
    }

    static void add(List<String> lines, String name, Object value) {
        if (value != null) {
            lines.add(name + " " + encode(String.valueOf(value)));
        }
    }
}
